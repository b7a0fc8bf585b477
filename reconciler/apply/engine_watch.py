"""Looks which engines this node has, and whether they were replaced, and tells the door to them.

The first look asks each of them for its version: seconds, in which what an earlier agent has
started serves already.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress

import structlog

from reconciler.apply.beside import beside
from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.within import within
from reconciler.backend.asking import GivenUp, until
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import Inventory

_log = structlog.get_logger("xgen.engines")

PAUSE_SECONDS = 5.0
"""Between looks at files, which cost some twenty calls to the kernel. What has changed is asked at
the second look that finds it the same."""
END_SECONDS = 10.0
"""For an engine that is being asked to be ended, with whatever it has started."""


class EngineWatch:
    """`look`: at all engines; it blocks. `wake`: called when something is new. `pause_seconds`:
    between looks. `first`: awaited before the first one, which takes a core for a while."""

    def __init__(
        self,
        look: Callable[[], Inventory],
        engines: Engines,
        *,
        wake: Callable[[], None],
        pause_seconds: float = PAUSE_SECONDS,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._ask = look
        self._engines = engines
        self._wake = wake
        self._pause_seconds = pause_seconds
        self._first = first
        self._closing = asyncio.Event()
        self._given_up = threading.Event()

    def looking(self) -> AbstractAsyncContextManager[None]:
        """It looks for as long as that is open."""
        return beside(self._run, name="engines", end=self._end, end_seconds=END_SECONDS)

    def _end(self) -> None:
        self._closing.set()
        self._given_up.set()

    async def _run(self) -> None:
        if self._first is not None:
            await self._first()
        ended = self._closing.is_set()
        while not ended:
            before = self._engines.inventory
            try:
                await in_daemon_thread(self._look, name="engines")
            except Exception as exc:  # noqa: BLE001  the task's boundary: what is known stays, and it looks again
                _log.exception("looking for engines failed")
                self._note_failure(exc)
            if self._engines.inventory is not before:
                self._wake()
            ended = await within(self._pause_seconds, self._closing)

    def _note_failure(self, exc: Exception) -> None:
        """While nothing is known, nothing is started: the status is to say why."""
        unknown = Inventory(failure=f"{type(exc).__name__}: {exc}")
        if not self._engines.inventory.known and self._engines.inventory != unknown:
            self._engines.take_up(unknown)

    def _look(self) -> None:
        with suppress(GivenUp), until(self._given_up):
            self._engines.take_up(self._ask())
