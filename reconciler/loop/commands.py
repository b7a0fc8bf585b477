"""What operators ask of a running agent: noted here, carried out by the loop's next tick (R1)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.plan.ids import ModelName


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """Look again now; with `retry`, forgive the failures of one model, or of all (R7).

    `done` gets the models whose failure was forgiven.
    """

    retry: bool
    model: ModelName | None
    asked_by: str
    done: asyncio.Future[tuple[ModelName, ...]] = field(compare=False, repr=False)

    @property
    def sentence(self) -> str:
        """For operators."""
        what = "look again"
        if self.retry:
            what = f"try {self.model or 'everything that failed'} again now"
        return f"{self.asked_by} asked to {what}"


class Commands:
    """The queue. `look_again`: makes the source be read at once."""

    def __init__(self, *, wake: Callable[[], None], look_again: Callable[[], None]) -> None:
        self._wake = wake
        self._look_again = look_again
        self._queue: list[Reconcile] = []

    async def reconcile(
        self, *, retry: bool, model: ModelName | None, asked_by: str
    ) -> tuple[ModelName, ...]:
        """Returns the models whose failure was forgiven, once the loop has taken it up."""
        done: asyncio.Future[tuple[ModelName, ...]] = asyncio.get_running_loop().create_future()
        command = Reconcile(retry=retry, model=model, asked_by=asked_by, done=done)
        self._queue.append(command)
        self._look_again()
        self._wake()
        try:
            return await done
        finally:
            if command in self._queue:
                self._queue.remove(command)

    def take(self) -> tuple[Reconcile, ...]:
        """All that came since the last call, for the loop."""
        taken = tuple(self._queue)
        self._queue.clear()
        return taken
