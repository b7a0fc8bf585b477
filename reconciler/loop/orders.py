"""What operators order that lasts: to suspend and to resume, to confirm a revision, not to wait for
a window. Noted at once, carried out by the loop's next tick (R1), kept over restarts."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.loop.commands import READ_SECONDS
from reconciler.plan.ids import ModelName


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    """`model` None: the whole node. `until`: RFC 3339, UTC; None: until it is lifted."""

    model: ModelName | None
    by: str
    reason: str
    until: str | None

    @property
    def sentence(self) -> str:
        until = f" until {self.until}" if self.until is not None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.by} suspended {self.model or 'the node'}{until}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """`model` None: the whole node, and not what is suspended of single models."""

    model: ModelName | None
    by: str

    @property
    def sentence(self) -> str:
        return f"{self.by} lifted the suspension of {self.model or 'the node'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """`revision`: one that waits, or how it begins."""

    revision: str
    by: str

    @property
    def sentence(self) -> str:
        return f"{self.by} confirmed revision {self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hurry:
    """What is pending of the newest revision does not wait for a maintenance window."""

    by: str

    @property
    def sentence(self) -> str:
        return f"{self.by} asked for what waits for a maintenance window to be done now"


Order = Suspend | Resume | Confirm | Hurry


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An order, and who waits for what comes of it: a sentence, or an error."""

    order: Order
    done: asyncio.Future[str]


class Orders:
    """The queue. `look_again`: makes the source be read at once; its event is set when it was."""

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
        self._queue: list[Given] = []

    async def suspend(
        self, model: ModelName | None, *, by: str, reason: str, until: str | None
    ) -> str:
        return await self._give(Suspend(model=model, by=by, reason=reason, until=until))

    async def resume(self, model: ModelName | None, *, by: str) -> str:
        return await self._give(Resume(model=model, by=by))

    async def confirm(self, revision: str, *, by: str) -> str:
        """The manifest is read first: what waits is what is there now."""
        read = self._look_again()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._read_seconds):
                await read.wait()
        return await self._give(Confirm(revision=revision, by=by))

    async def hurry(self, *, by: str) -> str:
        return await self._give(Hurry(by=by))

    def take(self) -> tuple[Given, ...]:
        """All that came since the last call, for the loop."""
        taken = tuple(self._queue)
        self._queue.clear()
        return taken

    async def _give(self, order: Order) -> str:
        """What came of it, as a sentence. Raises Rejected or Transient."""
        given = Given(order=order, done=asyncio.get_running_loop().create_future())
        self._queue.append(given)
        self._wake()
        try:
            return await given.done
        finally:
            if given in self._queue:
                self._queue.remove(given)
