"""A stop can be taken back for as long as the backend drains, and no longer."""

import asyncio

from reconciler.apply.backends import BackendView
from reconciler.apply.stop import Hurry, Recall, Stopper
from reconciler.plan.desired import Timeouts
from reconciler.proxy.inflight import Traffic
from tests.apply.dead_agent import LOAD_NOTED, dead_agent
from tests.apply.world import World

LIMITS = Timeouts(drain=600.0, stop=0.1, kill=30.0)


class Stop:
    """One under way, of a backend that has a request in flight for as long as `request` is open."""

    def __init__(self, world: World, view: BackendView) -> None:
        traffic = Traffic()
        self.request = traffic.request(view.model, view.nonce)
        self.request.__enter__()
        self.recall, self.hurry = Recall(), Hurry()
        stopper = Stopper(world.backends, traffic, self.hurry)
        self.task = asyncio.create_task(
            stopper.stop(view.nonce, LIMITS, drain=True, recall=self.recall)
        )

    def end_request(self) -> None:
        self.request.__exit__()


async def test_one_that_drains_is_kept_as_it_was(world: World) -> None:
    view = await world.spawn_loaded()
    stop = Stop(world, view)
    await asyncio.sleep(0)
    stop.recall.call()
    assert not stop.recall.possible
    assert await stop.task is None
    assert world.view(view) == view
    await world.stop(view)


async def test_one_that_an_earlier_agent_has_started_is_kept_as_it_was(world: World) -> None:
    """And is noted so: the agent after this one goes on with it, too."""
    dead = await dead_agent(world, note=LOAD_NOTED)
    view = await dead.adopted()
    stop = Stop(world, view)
    await asyncio.sleep(0)
    stop.recall.call()
    assert await stop.task is None
    assert world.view(view) == view
    assert (await dead.adopted()).pid == dead.pid
    await dead.stop()
    assert world.processes() == []


async def test_the_last_answer_ends_in_the_very_moment_and_it_is_kept(world: World) -> None:
    view = await world.spawn_loaded()
    stop = Stop(world, view)
    await asyncio.sleep(0)
    stop.end_request()
    stop.recall.call()
    assert await stop.task is None
    assert not world.view(view).stopping
    await world.stop(view)


async def test_after_the_first_signal_it_is_too_late(world: World) -> None:
    view = await world.spawn_loaded("--ignore-sigterm")
    stop = Stop(world, view)
    stop.end_request()
    await world.until(lambda: not stop.recall.possible, "the drain is over")
    assert world.view(view).stopping  # at once: nobody can come in between
    stop.recall.call()
    assert not stop.recall.called.is_set()
    assert await stop.task is not None
    assert world.backends.live() == ()


async def test_a_hurry_ends_the_drain_of_one_that_nobody_keeps(world: World) -> None:
    view = await world.spawn_loaded()
    stop = Stop(world, view)
    stop.hurry.hurried.set()
    assert await stop.task is not None
    stop.recall.call()
    assert world.backends.live() == ()
