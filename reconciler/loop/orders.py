"""What operators order that lasts: to suspend and to resume, to confirm a revision, not to wait for
a window. Noted at once, carried out by the loop's next tick (R1), kept over restarts."""

import asyncio
from dataclasses import dataclass

from reconciler.loop.inbox import Inbox
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


class Orders(Inbox[Given]):
    """The queue of them."""

    async def suspend(
        self, model: ModelName | None, *, by: str, reason: str, until: str | None
    ) -> str:
        return await self._give(Suspend(model=model, by=by, reason=reason, until=until))

    async def resume(self, model: ModelName | None, *, by: str) -> str:
        return await self._give(Resume(model=model, by=by))

    async def confirm(self, revision: str, *, by: str) -> str:
        """The manifest is read first: what waits is what is there now."""
        await self._read_source()
        return await self._give(Confirm(revision=revision, by=by))

    async def hurry(self, *, by: str) -> str:
        return await self._give(Hurry(by=by))

    async def _give(self, order: Order) -> str:
        """What came of it, as a sentence. Raises Rejected or Transient."""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await self._ask(Given(order=order, done=done), done)
