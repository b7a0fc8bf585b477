"""Real processes that hang, or have much to do: who is told to hang, and who is probed."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import pytest

from reconciler.apply.backends import BackendView
from reconciler.apply.liveness import BackendHung, Liveness, Surroundings
from reconciler.backend.launch import Counters
from reconciler.backend.llama_options import COUNTERS
from reconciler.observe.engine_pages import EnginePages
from reconciler.plan.desired import ModelType
from reconciler.plan.ids import GpuUuid, ModelName
from reconciler.proxy.heartbeat import Heartbeat
from reconciler.proxy.inflight import Request, Traffic
from tests.apply.world import SPEC, World, instance, launch

MODEL = ModelName("x")
STALL = 0.6
NOBODY = Counters(metrics_path="/metrics", generated_tokens="another:tokens_total")


@dataclass
class Node:
    """One node's watch. `probed`: how often an idle backend answered."""

    world: World
    traffic: Traffic = field(default_factory=Traffic)
    unwanted: ModelName | None = None
    verdicts: list[BackendHung] = field(default_factory=list)
    probing: int = 0
    probed: int = 0
    liveness: Liveness = field(init=False)

    async def load(
        self, *flags: str, counters: Counters = COUNTERS, name: str = MODEL, gpu: bool = False
    ) -> BackendView:
        """`gpu`: its model is on one, for all that is told: then what its CPU does says nothing."""
        view = await self.world.backends.spawn(
            model=ModelName(name),
            spec=SPEC,
            instance=instance(),
            gpus=(GpuUuid("GPU-1"),) if gpu else (),
            launch=replace(self.world.launch(*flags, name=name), counters=counters),
        )
        self.world.sessions.add(view.pid)
        await self.world.until(lambda: self.world.view(view).loaded_at is not None, "it is loaded")
        return self.world.view(view)

    @asynccontextmanager
    async def watching(self, *only: BackendView) -> AsyncIterator[None]:
        """All backends, or these as they are given."""
        async with EnginePages() as pages:
            surroundings = Surroundings(
                traffic=self.traffic,
                pages=pages,
                stall_of=lambda name: None if name == self.unwanted else STALL,
                families=self.world.backends.families,
                clock=asyncio.get_running_loop().time,
                wake=lambda: None,
                probing=self._be_about_to_probe,
                probed=self._be_probed,
                report=self.verdicts.append,
            )
            live = (lambda: only) if only else self.world.backends.live
            self.liveness = Liveness(live, surroundings)
            task = asyncio.create_task(self.liveness.run(), name="liveness")
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _be_about_to_probe(self, view: BackendView) -> None:
        self.probing += 1

    async def _be_probed(self, view: BackendView) -> None:
        assert self.probed < self.probing
        self.probed += 1

    async def hang_is_told(self, view: BackendView) -> BackendHung:
        def told() -> list[BackendHung]:
            return [verdict for verdict in self.verdicts if verdict.pid == view.pid]

        await self.world.until(lambda: bool(told()), f"{view.model} is told to hang")
        return told()[0]

    async def another_hangs(self) -> None:
        """One that comes later is found to hang: there was time enough for a verdict."""
        other = await self.load(name="other")
        os.kill(other.pid, signal.SIGSTOP)
        await self.hang_is_told(other)
        await self.world.stop(other, stop_seconds=0.0)
        assert [verdict.model for verdict in self.verdicts] == ["other"]

    async def seen(self, view: BackendView) -> int:
        """Requests that the engine has got, the agent's own included."""
        url = f"http://127.0.0.1:{view.launch.port}/debug/state"
        async with aiohttp.request("GET", url) as answer:
            return int((await answer.json())["seen"])


@pytest.fixture
def node(world: World) -> Node:
    return Node(world)


async def test_an_idle_backend_that_stops_is_found_by_a_probe(node: Node) -> None:
    view = await node.load()
    async with node.watching():
        await node.world.until(lambda: node.probed > 0, "it is probed")
        os.kill(view.pid, signal.SIGSTOP)
        told = await node.hang_is_told(view)
        assert (told.model, told.in_flight) == (MODEL, 0)
        assert re.match(r"no progress for \d+ s with no requests in flight", told.reason)
        assert told.reason.endswith("a probe of one token got no answer: nothing came within 0.6 s")
        hang = node.liveness.hung()[view.nonce]
        assert hang.reason == told.reason
    await node.world.stop(view, stop_seconds=0.0)


async def test_a_backend_that_stops_at_its_work_is_found(node: Node) -> None:
    view = await node.load()
    async with node.watching():
        with node.traffic.request(MODEL, view.nonce):
            os.kill(view.pid, signal.SIGSTOP)
            told = await node.hang_is_told(view)
        assert told.in_flight == 1
        assert told.stalled_seconds >= STALL
        assert "with 1 request in flight" in told.reason
    await node.world.stop(view, stop_seconds=0.0)


async def test_a_backend_that_goes_on_hangs_no_more(node: Node) -> None:
    view = await node.load()
    async with node.watching():
        os.kill(view.pid, signal.SIGSTOP)
        await node.hang_is_told(view)
        os.kill(view.pid, signal.SIGCONT)
        await node.world.until(lambda: not node.liveness.hung(), "it works again")
    assert len(node.verdicts) == 1
    await node.world.stop(view)


async def test_an_engine_that_generates_no_more_is_found_though_all_else_is_answered(
    node: Node,
) -> None:
    """Scenario 4, vllm#39863: /health is answered, and requests are refused at once."""
    view = await node.load(gpu=True)
    other = launch(mark="", port=view.launch.port, kind=ModelType.EMBEDDING).probe
    broken = replace(view, launch=replace(view.launch, probe=other))
    async with node.watching(broken):
        told = await node.hang_is_told(view)
    assert "a probe got no answer: 404 this server is not of type embedding" in told.reason
    await node.world.stop(view)


async def test_a_backend_without_progress_that_answers_a_probe_is_left_alone(node: Node) -> None:
    """Scenario 56, gonka PR#1421: a busy engine was restarted eight times a day."""
    view = await node.load(gpu=True)
    before = await node.seen(view)
    async with node.watching():
        with node.traffic.request(MODEL, view.nonce):
            await node.another_hangs()
    assert await node.seen(view) > before
    await node.world.stop(view)


async def test_no_probe_comes_beside_requests_that_are_served(node: Node) -> None:
    """Scenario 58, gpustack#3189."""
    view = await node.load()
    before = await node.seen(view)
    async with node.watching():
        with node.traffic.request(MODEL, view.nonce) as request:
            request.is_work = True
            passing = asyncio.create_task(_pass_on(request))
            await node.another_hangs()
            passing.cancel()
        assert await node.seen(view) == before
    await node.world.stop(view)


async def test_no_probe_comes_where_a_request_was_answered_lately(node: Node) -> None:
    """Though nothing is in flight between two of them."""
    view = await node.load()
    before = await node.seen(view)
    async with node.watching():
        answering = asyncio.create_task(_answer_one_by_one(node.traffic, view))
        await node.another_hangs()
        answering.cancel()
        assert await node.seen(view) == before
    await node.world.stop(view)


async def test_a_client_that_does_not_read_is_no_hang(node: Node) -> None:
    view = await node.load("--hang-metrics")
    before = await node.seen(view)
    async with node.watching():
        with node.traffic.request(MODEL, view.nonce) as request:
            request.heartbeat = _heartbeat()
            request.heartbeat.sending = True
            await node.another_hangs()
        assert await node.seen(view) == before
    await node.world.stop(view)


async def test_an_engine_without_counters_is_neither_judged_nor_probed(node: Node) -> None:
    view = await node.load(counters=Counters())
    before = await node.seen(view)
    async with node.watching():
        with node.traffic.request(MODEL, view.nonce):
            await node.another_hangs()
        assert await node.seen(view) == before
    await node.world.stop(view)


async def test_an_engine_whose_page_has_no_counts_is_not_judged(node: Node) -> None:
    """vLLM with `disable_log_stats`."""
    view = await node.load(counters=NOBODY)
    before = await node.seen(view)
    async with node.watching():
        with node.traffic.request(MODEL, view.nonce):
            await node.another_hangs()
        assert await node.seen(view) == before
    await node.world.stop(view)


async def test_what_nobody_wants_any_more_is_not_judged(node: Node) -> None:
    node.unwanted = MODEL
    view = await node.load()
    async with node.watching():
        os.kill(view.pid, signal.SIGSTOP)
        with node.traffic.request(MODEL, view.nonce):
            await node.another_hangs()
    await node.world.stop(view, stop_seconds=0.0)


async def _pass_on(request: Request) -> None:
    """A stream of single bytes."""
    for _ in range(100_000):
        request.relayed_bytes += 1
        await asyncio.sleep(STALL / 20)


async def _answer_one_by_one(traffic: Traffic, view: BackendView) -> None:
    """With a pause after each."""
    for _ in range(100_000):
        with traffic.request(MODEL, view.nonce) as request:
            request.is_work = True
            request.relayed_bytes = 1
        await asyncio.sleep(STALL / 20)


def _heartbeat() -> Heartbeat:
    async def send(_: object) -> None:
        raise AssertionError("nothing is sent")

    return Heartbeat(send, seconds=60.0, may_begin=None, head=dict)
