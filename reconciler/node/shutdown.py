"""How an agent ends (R10): the first signal drains, the second does not wait, the third kills."""

import asyncio
from collections.abc import Mapping

import structlog

from reconciler.apply.backends import Backends, BackendView
from reconciler.apply.effects import Effects
from reconciler.apply.stop import Hurry, Stopper
from reconciler.errors import XgenError
from reconciler.plan.desired import Timeouts
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import Leftover

_log = structlog.get_logger("xgen.node")


class Shutdown:
    """Counts the signals: the first sets `begun`, the next two raise the hurry.

    `cause`: the first one's name.
    """

    def __init__(self) -> None:
        self.cause = ""
        self.begun = asyncio.Event()
        self.hurry = Hurry()

    def signal(self, name: str) -> None:
        if not self.begun.is_set():
            self.cause = name
            self.begun.set()
        elif not self.hurry.hurried.is_set():
            _log.warning("ending without waiting for requests", signal=name)
            self.hurry.hurried.set()
        else:
            _log.warning("killing what is left", signal=name)
            self.hurry.killing.set()


async def stop_all(
    backends: Backends,
    effects: Effects,
    stopper: Stopper,
    timeouts: Mapping[ModelName, Timeouts],
) -> list[str]:
    """Drain and stop every backend, and what earlier agents left, all at once.

    Returns what could not be stopped, in words.
    """
    effects.abort_fetches()
    await effects.settled()
    survivors: list[str] = []

    async def stop(each: BackendView | Leftover) -> None:
        limits = timeouts.get(each.model, Timeouts())
        try:
            await stopper.stop(each.nonce, limits, drain=isinstance(each, BackendView))
        except XgenError as exc:
            _log.error("a backend survives", model=each.model, error=str(exc))
            survivors.append(str(exc))

    everyone: list[BackendView | Leftover] = [*backends.live(), *backends.leftovers()]
    async with asyncio.TaskGroup() as group:
        for each in everyone:
            group.create_task(stop(each), name=f"stop:{each.model}")
    return survivors
