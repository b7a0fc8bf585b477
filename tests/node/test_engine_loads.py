"""Queues and caches of engines, as the looks of the token count find them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from reconciler.apply.backends import BackendView
from reconciler.backend.launch import Counters
from reconciler.metrics import Metrics
from reconciler.node.engine_loads import EngineLoads
from reconciler.node.tokens import TokenCount
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.progress import Progress
from reconciler.plan.ids import ModelName, Nonce
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.local_loads import LocalLoads
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.turns import Turns
from tests.apply.world import SPEC, World, instance

MODEL = ModelName("x")
COUNTERS = Counters(metrics_path="/metrics", waiting="engine:waiting", kv_usage="engine:kv")


@asynccontextmanager
async def engine(*pages: str | None) -> AsyncIterator[int]:
    """The port of one that says this at each look; None: that it cannot."""
    rest = list(pages)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        page = rest.pop(0)
        body, status = (page or "").encode(), b"500 No" if page is None else b"200 OK"
        head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        writer.write(head + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def loaded(world: World) -> BackendView:
    launch = replace(world.launch(), counters=COUNTERS)
    view = await world.backends.spawn(
        model=MODEL, spec=SPEC, instance=instance(), gpus=(), launch=launch
    )
    world.sessions.add(view.pid)
    await world.until(lambda: world.view(view).loaded_at is not None, "it is loaded")
    return world.view(view)


async def test_each_look_shows_what_the_engine_says_then(world: World) -> None:
    view, traffic, loads = await loaded(world), Traffic(), EngineLoads()
    turns = Turns(queue_length=8, wait_seconds=1.0)
    local = LocalLoads(traffic, turns, loads)
    pages = ("engine:waiting 3\nengine:kv 0.5\n", None, "engine:waiting 0\nengine:kv 0.25\n")
    async with engine(*pages) as port, EnginePages(answer_seconds=5) as client:
        live = [replace(view, launch=replace(view.launch, port=port))]
        tokens = TokenCount(
            live=lambda: live,
            traffic=traffic,
            pages=client,
            metrics=Metrics(node="node-a"),
            loads=loads,
        )
        assert local.figures(MODEL) == IDLE
        with traffic.request(MODEL, view.nonce):
            await tokens.look()
            assert local.figures(MODEL) == ModelLoad(in_flight=1, queued=3, kv_usage=0.5)
            await tokens.look()
            assert local.figures(MODEL) == ModelLoad(in_flight=1)
        await tokens.look()  # once more after the last request
        await tokens.look()  # nobody is asked
        assert local.figures(MODEL) == ModelLoad(queued=0, kv_usage=0.25)
        live.clear()
        await tokens.look()
        assert local.figures(MODEL) == IDLE
    await world.stop(view)


async def test_the_newer_process_of_a_model_counts(world: World) -> None:
    view, loads = await loaded(world), EngineLoads()
    assert view.loaded_at is not None
    newer = replace(view, nonce=Nonce("newer"), loaded_at=view.loaded_at + 1)
    loads.take(view, Progress(waiting=5))
    loads.take(newer, Progress(waiting=1))
    loads.take(view, Progress(waiting=9))
    loads.take(view, None)
    assert loads.queued(MODEL) == 1
    loads.keep_only([view.nonce])
    assert loads.queued(MODEL) is None
    await world.stop(view)
