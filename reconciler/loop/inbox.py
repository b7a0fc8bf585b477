"""Where what operators ask waits for the loop's next tick (R1)."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

READ_SECONDS = 3.0
"""For the source to be read before what was asked is carried out all the same."""


class Inbox(Generic[T]):
    """`look_again`: makes the source be read at once; its event is set when it was."""

    def __init__(
        self,
        *,
        wake: Callable[[], None],
        look_again: Callable[[], asyncio.Event],
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._wake = wake
        self._look_again = look_again
        self._read_seconds = read_seconds
        self._asked: list[T] = []

    def take(self) -> tuple[T, ...]:
        """All that came since the last call, for the loop."""
        taken = tuple(self._asked)
        self._asked.clear()
        return taken

    async def _read_source(self) -> None:
        """So that the tick which takes up what is asked knows the newest manifest; a source that
        hangs (NFS) holds up nothing."""
        read = self._look_again()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._read_seconds):
                await read.wait()

    async def _ask(self, asked: T, done: asyncio.Future[R]) -> R:
        """What the loop says of it in `done`."""
        self._asked.append(asked)
        self._wake()
        try:
            return await done
        finally:
            if asked in self._asked:
                self._asked.remove(asked)
