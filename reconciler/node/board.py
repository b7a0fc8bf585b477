"""Where the newest status hangs: the loop writes it, the HTTP side and the demo read it."""

import asyncio

from reconciler.status import Status


class Board:
    def __init__(self, status: Status) -> None:
        self._status = status
        self._changed = asyncio.Event()

    def current(self) -> Status:
        return self._status

    def publish(self, status: Status) -> None:
        self._status = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer_than(self, version: int) -> Status:
        """The first status with a later version; waits for it."""
        while self._status.version <= version:
            await self._changed.wait()
        return self._status
