"""How many connections a node has to its store at once, whatever it fetches."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_SECONDS = 0.1


class Connections:
    """A number of places; thread-safe. All wait while the store asks to slow down."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._open_at = 0.0
        self._changed = threading.Condition()

    @contextmanager
    def one(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold a place. `check` is called before, and while it waits; it may raise to end that."""
        check()
        with self._changed:
            while (closed := self._open_at - time.monotonic()) > 0 or self._free == 0:
                check()
                self._changed.wait(min(closed, _LOOK_SECONDS) if closed > 0 else _LOOK_SECONDS)
            self._free -= 1
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify()

    def hold_off(self, seconds: float) -> None:
        """Begin nothing new for so long; what is under way goes on."""
        with self._changed:
            self._open_at = max(self._open_at, time.monotonic() + seconds)
