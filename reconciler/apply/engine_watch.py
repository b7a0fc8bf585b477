"""Looks whether this node's engines were replaced, and lets the door to them know the new ones."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.within import within
from reconciler.backend.discovery import Discovery
from reconciler.backend.engines import Engines

_log = structlog.get_logger("xgen.engines")

PAUSE_SECONDS = 5.0
"""Between looks at files, which cost some twenty calls to the kernel. What has changed is asked at
the second look that finds it the same."""
END_SECONDS = 10.0
"""For an engine that is being asked to answer, or to be ended by its time limit."""


class EngineWatch:
    """As an async context manager it looks for as long as it is open.

    `wake`: called when something is new. `pause_seconds`: between looks.
    """

    def __init__(
        self,
        discovery: Discovery,
        engines: Engines,
        *,
        wake: Callable[[], None],
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._discovery = discovery
        self._engines = engines
        self._wake = wake
        self._pause_seconds = pause_seconds
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="engines")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=END_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not await within(self._pause_seconds, self._closing):
            before = self._engines.inventory
            try:
                await in_daemon_thread(self._look, name="engines")
            except Exception:  # noqa: BLE001  the task's boundary: what is known stays, and it looks again
                _log.exception("looking for engines failed")
            if self._engines.inventory is not before:
                self._wake()

    def _look(self) -> None:
        self._engines.take_up(self._discovery.look())
