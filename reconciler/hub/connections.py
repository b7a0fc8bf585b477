"""How many connections a node has to its store at once, whatever it fetches."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_LOOK_SECONDS = 0.5


class Connections:
    """A number of places, shared out among the fetches under way; thread-safe.

    None is left empty while somebody waits. Who has the fewest is next: those that began early
    have more at first, and the same soon. All wait while the store asks to slow down.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._fetches = 0
        self._open_at = 0.0
        self._lock = threading.Lock()
        self._waiting: list[_Turn] = []

    @contextmanager
    def for_a_fetch(self) -> Iterator["Share"]:
        """The places of one fetch."""
        with self._lock:
            self._fetches += 1
        try:
            yield Share(self)
        finally:
            with self._lock:
                self._fetches -= 1

    def hold_off(self, seconds: float) -> None:
        """Begin nothing new for so long; what is under way goes on."""
        with self._lock:
            self._open_at = max(self._open_at, time.monotonic() + seconds)

    def wait_until_open(self, check: Callable[[], None]) -> None:
        """`check` is called while it waits; it may raise to end that."""
        while (closed := self._open_at - time.monotonic()) > 0:
            check()
            time.sleep(min(closed, _LOOK_SECONDS))
        check()

    def _equal_share(self) -> int:
        with self._lock:
            return -(-self.limit // max(1, self._fetches))

    def _take(self, share: "Share", check: Callable[[], None]) -> None:
        with self._lock:
            turn = _Turn(share, threading.Condition(self._lock))
            self._waiting.append(turn)
            self._let_in()
            try:
                while not turn.has_come:
                    check()
                    turn.changed.wait(_LOOK_SECONDS)
            except BaseException:
                self._waiting.remove(turn)
                raise

    def _give_back(self, share: "Share") -> None:
        with self._lock:
            self._free += 1
            share.held -= 1
            self._let_in()

    def _let_in(self) -> None:
        while self._free and self._waiting:
            turn = min(self._waiting, key=lambda waiting: waiting.share.held)
            self._waiting.remove(turn)
            self._free -= 1
            turn.share.held += 1
            turn.has_come = True
            turn.changed.notify()


class Share:
    """The places of one fetch. `held`: how many it has, for `Connections` alone."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.held = 0

    @property
    def equal(self) -> int:
        """How many it has once all have the same; that changes as fetches begin and end."""
        return self._connections._equal_share()

    @contextmanager
    def one(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold a place. `check` is called before, and while it waits; it may raise to end that."""
        check()
        self._connections._take(self, check)
        try:
            yield
        finally:
            self._connections._give_back(self)


@dataclass(slots=True, eq=False)
class _Turn:
    """A thread that waits for a place. `changed`: `has_come` is true now."""

    share: Share
    changed: threading.Condition
    has_come: bool = False
