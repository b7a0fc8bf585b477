"""What is dispatched while effects are held takes its first step when they are no more."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from reconciler.apply.effects import Effects
from reconciler.apply.stop import Hurry, Stopper
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import Inventory
from reconciler.cache.model_cache import ModelCache
from reconciler.manifest.policy import STRICT
from reconciler.plan.actions import StopBackend
from reconciler.proxy.inflight import Traffic
from tests.apply.world import World


@pytest.fixture
async def effects(world: World) -> AsyncIterator[Effects]:
    async with Effects(
        cache=ModelCache(world.data_dir / "models", None),
        backends=world.backends,
        engines=Engines(Inventory(), shared_cache="", machine_bytes=None, permissions=STRICT),
        stopper=Stopper(world.backends, Traffic(), Hurry()),
        clock=time.monotonic,
        wake=lambda: None,
        environment={},
    ) as made:
        yield made


async def test_a_stop_waits_until_the_status_without_its_backend_is_out(
    world: World, effects: Effects
) -> None:
    """Else a request would be sent to what is being ended."""
    view = await world.spawn_loaded()
    stop = StopBackend(
        model=view.model, nonce=view.nonce, pid=view.pid, drain=True, reason="so", cause="so"
    )
    with effects.holding():
        effects.dispatch(stop, None, now=0.0)
        settling = asyncio.create_task(effects.settled())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not world.view(view).stopping
        assert not settling.done()  # an agent that ends waits for it, too
        assert view.model in effects.in_flight()
    await settling
    assert world.backends.live() == ()
