"""Tokens are counted by what real processes say, each once, over their whole life."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import aiohttp
import pytest

from reconciler.apply.backends import BackendView
from reconciler.apply.stop import Hurry, Stopper
from reconciler.backend.llama_options import COUNTERS
from reconciler.metrics import Metrics, TokenKind
from reconciler.node.engine_loads import EngineLoads
from reconciler.node.tokens import TokenCount
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.readiness import question
from reconciler.plan.desired import Timeouts
from reconciler.plan.ids import ModelName
from reconciler.proxy.inflight import Traffic
from tests.apply.world import KEY, SPEC, World, instance

MODEL = ModelName("x")


class Pages(EnginePages):
    """Real ones, that say how often they were asked."""

    asked = 0

    async def read(self, *asked: object, **more: object) -> str:
        self.asked += 1
        return await super().read(*asked, **more)  # type: ignore[arg-type]


@dataclass
class Node:
    world: World
    traffic: Traffic
    metrics: Metrics
    pages: Pages
    tokens: TokenCount
    loads: EngineLoads

    def another_count(self, live: Callable[[], Iterable[BackendView]]) -> TokenCount:
        return TokenCount(
            live=live,
            traffic=self.traffic,
            pages=self.pages,
            metrics=self.metrics,
            loads=self.loads,
        )

    async def load(self, *flags: str) -> BackendView:
        """A backend that answers with five tokens, its first question answered."""
        launch = self.world.launch("--chunks", "5", *flags)
        view = await self.world.backends.spawn(
            model=MODEL,
            spec=SPEC,
            instance=instance(),
            gpus=(),
            launch=replace(launch, counters=COUNTERS),
        )
        self.world.sessions.add(view.pid)
        loaded = self.world.view
        await self.world.until(lambda: loaded(view).loaded_at is not None, "it is loaded")
        return loaded(view)

    async def ask(self, view: BackendView) -> None:
        """One request, as the HTTP side counts it."""
        watch = self.metrics.watch_request()
        watch.at_model(self.metrics.of_model(view.model))
        url = f"http://{view.launch.host}:{view.launch.port}/v1/chat/completions"
        headers = {"Authorization": f"Bearer {KEY}"}
        with self.traffic.request(view.model, view.nonce):
            async with aiohttp.request("POST", url, json={}, headers=headers) as answer:
                await answer.read()
        watch.code = 200
        watch.end()

    async def probe(self, view: BackendView) -> None:
        """Past the HTTP side, as the agent asks."""
        async with aiohttp.ClientSession() as session:
            assert await question(session, view.launch, seconds=30) is None

    async def stop(self, view: BackendView, *, drain: float = 60.0) -> None:
        stopper = Stopper(self.world.backends, self.tokens, Hurry())
        await stopper.stop(view.nonce, Timeouts(drain=drain, stop=30, kill=30), drain=True)

    @property
    def counted(self) -> tuple[int, int]:
        """Prompt and generated."""
        found = self.metrics.tokens_of(MODEL)
        return found[TokenKind.PROMPT], found[TokenKind.GENERATED]


@pytest.fixture
async def node(world: World) -> AsyncIterator[Node]:
    traffic, metrics = Traffic(), Metrics(node="node-a")
    async with Pages(answer_seconds=5) as pages:
        loads = EngineLoads()
        count = TokenCount(
            live=world.backends.live, traffic=traffic, pages=pages, metrics=metrics, loads=loads
        )
        yield Node(world, traffic, metrics, pages, count, loads)


async def test_tokens_are_those_that_the_engine_counted(node: Node) -> None:
    view = await node.load()
    await node.tokens.look()
    assert node.counted == (1, 5)  # the agent's own first question
    await node.ask(view)
    await node.ask(view)
    await node.tokens.look()
    await node.tokens.look()
    assert node.counted == (3, 15)
    await node.stop(view)


async def test_what_was_counted_before_this_agent_came_is_not_counted_again(node: Node) -> None:
    view = await node.load()
    await node.ask(view)
    world = node.world
    world.plays_init = True
    await world.backends.close()
    world.backends = world.make_backends()
    await world.backends.open()
    await world.until(lambda: world.view(view).loaded_at is not None, "it answers")
    tokens = node.another_count(world.backends.live)

    await tokens.look()
    assert node.counted == (0, 0)
    await node.ask(view)
    await tokens.look()

    assert node.counted == (1, 5)
    await node.stop(view)


async def test_an_idle_backend_is_not_asked(node: Node) -> None:
    view = await node.load()
    await node.tokens.look()
    asked = node.pages.asked
    for _ in range(3):
        await node.tokens.look()
    assert node.pages.asked == asked
    await node.ask(view)
    for _ in range(5):
        await node.tokens.look()
    assert node.pages.asked == asked + 2  # once more, for what is counted late
    await node.stop(view)
    assert node.pages.asked == asked + 2


async def test_a_request_under_way_is_work(node: Node) -> None:
    view = await node.load()
    await node.tokens.look()
    asked = node.pages.asked
    with node.traffic.request(MODEL, view.nonce):
        for _ in range(3):
            await node.tokens.look()
    assert node.pages.asked == asked + 3
    await node.stop(view)


async def test_a_probe_of_ours_is_left_out(node: Node) -> None:
    view = await node.load()
    await node.tokens.look()
    await node.ask(view)
    await node.tokens.look()  # and is to look once more
    await node.tokens.catch_up(view)
    await node.probe(view)
    await node.tokens.leave_out(view)
    await node.ask(view)
    await node.stop(view)
    assert node.counted == (3, 15)


async def test_who_asks_beside_a_probe_is_counted(node: Node) -> None:
    view = await node.load()
    for _ in range(2):
        await node.tokens.look()
    await asyncio.gather(node.probe(view), node.ask(view))
    await node.tokens.leave_out(view)
    await node.stop(view)
    assert node.counted == (3, 15)  # and the probe with it, for nobody can tell them apart


async def test_a_stop_loses_nothing_of_what_ended_before_it(node: Node) -> None:
    view = await node.load()
    await node.ask(view)
    await node.stop(view)
    assert node.counted == (2, 10)


async def test_the_sum_goes_on_over_a_restart(node: Node) -> None:
    for _ in range(2):
        view = await node.load()
        await node.ask(view)
        await node.stop(view)
    assert node.counted == (4, 20)


async def test_two_looks_at_once_count_once(node: Node) -> None:
    view = await node.load()
    await asyncio.gather(*(node.tokens.look() for _ in range(5)), node.stop(view))
    assert node.counted == (1, 5)


async def test_a_page_that_hangs_is_waited_for_no_longer_than_the_drain(node: Node) -> None:
    view = await node.load("--hang-metrics")
    await node.stop(view, drain=0.1)
    assert node.metrics.tokens_of(MODEL) == {}


@asynccontextmanager
async def pages_that_say(*totals: int) -> AsyncIterator[int]:
    """The port of an engine whose count is this at each look."""
    rest = list(totals)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"llamacpp:prompt_tokens_total %d\n" % rest.pop(0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def test_a_count_that_fell_began_anew(node: Node) -> None:
    view = await node.load()
    async with pages_that_say(100, 30, 40) as port:
        other = replace(view, launch=replace(view.launch, port=port))
        tokens = node.another_count(lambda: [other])
        with node.traffic.request(MODEL, view.nonce):
            for _ in range(3):
                await tokens.look()
    assert node.metrics.tokens_of(MODEL) == {TokenKind.PROMPT: 140}
    await node.world.stop(view)
