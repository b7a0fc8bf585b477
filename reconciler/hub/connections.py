"""How many connections a node has to its store at once, whatever it fetches."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_SECONDS = 0.5


class Connections:
    """A number of places, shared out among the fetches under way; thread-safe.

    All wait while the store asks to slow down.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._fetches = 0
        self._open_at = 0.0
        self._changed = threading.Condition()

    @contextmanager
    def for_a_fetch(self) -> Iterator["Share"]:
        """The part of the places that one fetch may hold, less as others join."""
        with self._changed:
            self._fetches += 1
        try:
            yield Share(self)
        finally:
            with self._changed:
                self._fetches -= 1
                self._changed.notify_all()

    def hold_off(self, seconds: float) -> None:
        """Begin nothing new for so long; what is under way goes on."""
        with self._changed:
            self._open_at = max(self._open_at, time.monotonic() + seconds)

    def wait_until_open(self, check: Callable[[], None]) -> None:
        """`check` is called while it waits; it may raise to end that."""
        while (closed := self._open_at - time.monotonic()) > 0:
            check()
            with self._changed:
                self._changed.wait(min(closed, _LOOK_SECONDS))
        check()

    def _take(self, share: "Share", check: Callable[[], None]) -> None:
        with self._changed:
            while self._free == 0 or share.held >= -(-self._limit // self._fetches):
                check()
                self._changed.wait(_LOOK_SECONDS)
            self._free -= 1
            share.held += 1

    def _give_back(self, share: "Share") -> None:
        with self._changed:
            self._free += 1
            share.held -= 1
            self._changed.notify_all()


class Share:
    """The places of one fetch. `held`: how many it has, for `Connections` alone."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.held = 0

    @contextmanager
    def one(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold a place. `check` is called before, and while it waits; it may raise to end that."""
        check()
        self._connections._take(self, check)
        try:
            yield
        finally:
            self._connections._give_back(self)
