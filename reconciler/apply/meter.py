"""How far the work of a thread is, told to the event loop while it goes on."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from reconciler.apply.speed import Speed
from reconciler.status import Doing, Progress

TELL_SECONDS = 1.0


class Meter:
    """Made on the event loop, which `moved` is called on when there is more, at most once in
    `TELL_SECONDS`. The thread may go on when nobody listens any more."""

    def __init__(self, moved: Callable[[], None]) -> None:
        self._moved = moved
        self._loop = asyncio.get_running_loop()
        self._told_at = 0.0
        self._current = (Doing.FETCH, Speed())

    @property
    def progress(self) -> Progress | None:
        """None: not known yet."""
        doing, speed = self._current
        return speed.progress(doing, time.monotonic())

    def note(self, doing: Doing, done: int, total: int) -> None:
        """From the thread that works."""
        now = time.monotonic()
        if doing is not self._current[0]:
            self._current = (doing, Speed())
        self._current[1].note(done, total, now)
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._moved)
