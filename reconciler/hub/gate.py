"""Lets threads use a file for as long as their fetch lasts, and not a moment longer.

A thread may hang in a connection for a minute. Its fetch does not wait for it: once the gate is
closed, the descriptor may be closed and its number given to another file.
"""

import threading
from types import TracebackType


class Abandoned(Exception):
    """The fetch is over: nobody asks for this thread's work any more."""


class Gate:
    """`with gate:` around each use of the file. Raises Abandoned once it is closed."""

    def __init__(self) -> None:
        self._inside = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def check(self) -> None:
        if self._is_closed:
            raise Abandoned

    def is_closed(self) -> bool:
        return self._is_closed

    def wait(self, seconds: float) -> None:
        """Less where it is closed meanwhile."""
        with self._changed:
            self._changed.wait_for(self.is_closed, seconds)

    def __enter__(self) -> None:
        with self._changed:
            self.check()
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Waits for those inside: for one write to the disk at most."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._inside == 0)
