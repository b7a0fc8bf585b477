"""A time limit that is moved with every request and almost never passes."""

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls `passed` when its time has come. Moving it costs no timer: one is set anew when it
    fires too early, or would fire too late.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, passed: Callable[[], None]) -> None:
        self._loop = loop
        self._passed = passed
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        self._at = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._at:
            self._arm(self._at)

    def clear(self) -> None:
        self._at = None

    def close(self) -> None:
        """For good; it lets go of what it would have called."""
        self.clear()
        self._passed = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._at > self._loop.time():
            self._arm(self._at)
        else:
            self._at = None
            self._passed()


def _nothing() -> None:
    pass
