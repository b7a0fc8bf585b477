"""Where the newest status and plan hang: the loop writes them, the HTTP side and the demo read."""

import asyncio

from reconciler.status import Planned, Status


class Board:
    def __init__(self, status: Status) -> None:
        self._status = status
        self._changed = asyncio.Event()
        self._planned: Planned | None = None

    def current(self) -> Status:
        return self._status

    def publish(self, status: Status) -> None:
        self._status = status
        self._changed.set()
        self._changed = asyncio.Event()

    def planned(self) -> Planned | None:
        """The newest plan; None before the first tick."""
        return self._planned

    def show_plan(self, planned: Planned) -> None:
        self._planned = planned

    async def newer_than(self, version: int) -> Status:
        """The first status with a later version; waits for it."""
        while self._status.version <= version:
            await self._changed.wait()
        return self._status
