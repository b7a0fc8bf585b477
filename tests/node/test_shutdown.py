"""An agent that ends waits for the answers that pass through it, and for no end of new ones."""

import asyncio
from contextlib import ExitStack

import pytest
from structlog.testing import capture_logs

from reconciler.apply.stop import Hurry
from reconciler.node.shutdown import let_through
from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.visits import Visits

_MODEL, _PEER = ModelName("llm"), Address(host="10.0.0.2", port=8000)
_FOREVER = 3600.0


class _Traffic:
    """A new request begins before an older one ends, for as long as the agent takes any."""

    def __init__(self) -> None:
        self.visits = Visits()
        self.refused = asyncio.Event()
        self.goes_on = asyncio.Event()
        self._sent = 0

    async def run(self) -> None:
        with ExitStack() as before:
            while not self.refused.is_set():
                with ExitStack() as one:
                    one.enter_context(self.visits.begin(_MODEL, _PEER, streams=False))
                    before.close()
                    before = one.pop_all()
                self._sent += 1
                if self._sent == 10:
                    self.goes_on.set()
                await asyncio.sleep(0)
            before.close()


async def test_new_requests_are_passed_on_while_an_answer_passes_through() -> None:
    """Also once this node's backends have ended: it is up and has peers that serve the model."""
    visits, ended, refused = Visits(), asyncio.Event(), asyncio.Event()
    ended.set()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        with visits.begin(_MODEL, _PEER, streams=True):
            passing = tasks.create_task(
                let_through(
                    visits,
                    Hurry(),
                    refused.set,
                    ended,
                    seconds=_FOREVER,
                    passing_on_seconds=_FOREVER,
                )
            )
            for _ in range(10):
                await asyncio.sleep(0)
            assert not refused.is_set()
        await passing
    assert refused.is_set()


async def test_an_idle_agent_refuses_as_soon_as_its_backends_have_ended() -> None:
    ended, refused = asyncio.Event(), asyncio.Event()
    ended.set()
    async with asyncio.timeout(60):
        await let_through(Visits(), Hurry(), refused.set, ended, seconds=_FOREVER)
    assert refused.is_set()


@pytest.mark.parametrize("backends_end", [True, False])
async def test_steady_traffic_is_not_passed_on_for_ever(backends_end: bool) -> None:
    traffic, ended = _Traffic(), asyncio.Event()
    if backends_end:
        ended.set()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(traffic.run())
        await traffic.goes_on.wait()
        await let_through(
            traffic.visits,
            Hurry(),
            traffic.refused.set,
            ended,
            seconds=_FOREVER,
            passing_on_seconds=0.05,
        )
    assert traffic.visits.away == {}


async def test_it_is_told_what_is_waited_for_and_what_was_not_to_be_had() -> None:
    visits, ended = Visits(), asyncio.Event()
    ended.set()
    with capture_logs() as logs, visits.begin(_MODEL, _PEER, streams=False), visits.hop():
        await let_through(visits, Hurry(), lambda: None, ended, seconds=0.05)
    waiting, cut = logs
    assert "waiting for answers of other nodes" in waiting["event"]
    passing = "1 of llm at 10.0.0.2:8000, 1 for nodes that their clients named"
    assert (waiting["waits_for"], waiting["backends"]) == (passing, "ended")
    assert cut["unfinished"] == passing


async def test_who_is_told_not_to_wait_does_not() -> None:
    visits, hurry = Visits(), Hurry()
    hurry.hurried.set()
    with visits.begin(_MODEL, _PEER, streams=False):
        async with asyncio.timeout(60):
            await let_through(visits, hurry, lambda: None, asyncio.Event(), seconds=_FOREVER)
