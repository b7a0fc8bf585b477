"""The backends of one agent, opened, and whether what an earlier one left has answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reconciler.apply.backends import Backends
from reconciler.apply.custody import HoldFolder
from reconciler.loop.clock import Clock
from reconciler.plan.ids import NodeName
from reconciler.settings import Settings

_LOOKS_FOR_ANSWERS = 20
_LOOK_SECONDS = 0.05


async def answers_are_there(backends: Backends) -> None:
    """Of all that an earlier agent has left; or they take their time."""
    for _ in range(_LOOKS_FOR_ANSWERS):
        if all(view.loaded_at is not None for view in backends.live()):
            return
        await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def open_backends(
    settings: Settings,
    node: NodeName,
    clock: Clock,
    wakeup: asyncio.Event,
    hold_folder: HoldFolder,
) -> AsyncIterator[Backends]:
    backends = Backends(
        data_dir=settings.data_dir,
        node=node,
        clock=clock.monotonic,
        wake=wakeup.set,
        ports=settings.ports,
        log_max_bytes=settings.log_max_bytes,
        hold_folder=hold_folder,
    )
    await backends.open()
    try:
        yield backends
    finally:
        await backends.close()
