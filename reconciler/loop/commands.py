"""What operators ask of a running agent: noted here, carried out by the loop's next tick (R1)."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.loop.inbox import Inbox
from reconciler.plan.ids import ModelName


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """Look again now; with `retry`, forgive the failures of one model, or of all (R7).

    `done` gets the models whose failure was forgiven, each with why it is not tried all the same;
    None: it is.
    """

    retry: bool
    model: ModelName | None
    asked_by: str
    done: asyncio.Future[Mapping[ModelName, str | None]] = field(compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """For operators."""
        what = "look again"
        if self.retry:
            what = f"try {self.model or 'everything that failed'} again now"
        return f"{self.asked_by} asked to {what}"


class Commands(Inbox[Reconcile]):
    """The queue of them."""

    async def reconcile(
        self, *, retry: bool, model: ModelName | None, asked_by: str
    ) -> Mapping[ModelName, str | None]:
        """Returns the models whose failure was forgiven, once the loop has taken it up: see
        `Reconcile`. The manifest is read first."""
        done: asyncio.Future[Mapping[ModelName, str | None]] = (
            asyncio.get_running_loop().create_future()
        )
        command = Reconcile(retry=retry, model=model, asked_by=asked_by, done=done)
        await self._read_source()
        return await self._ask(command, done)
