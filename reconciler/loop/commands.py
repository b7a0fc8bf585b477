"""What operators ask of a running agent: noted here, carried out by the loop's next tick (R1)."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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


READ_SECONDS = 3.0
"""For the source to be read before a command is carried out all the same."""


class Commands:
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
        self._queue: list[Reconcile] = []

    async def reconcile(
        self, *, retry: bool, model: ModelName | None, asked_by: str
    ) -> Mapping[ModelName, str | None]:
        """Returns the models whose failure was forgiven, once the loop has taken it up: see
        `Reconcile`.

        The manifest is read first, so that the tick which takes it up knows the newest one; a
        source that hangs (NFS) holds up no retry.
        """
        done: asyncio.Future[Mapping[ModelName, str | None]] = (
            asyncio.get_running_loop().create_future()
        )
        command = Reconcile(retry=retry, model=model, asked_by=asked_by, done=done)
        read = self._look_again()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._read_seconds):
                await read.wait()
        self._queue.append(command)
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
