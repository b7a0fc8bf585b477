"""Over a hop, too, a client that leaves ends its work at the engine, and an agent's end is told."""

import asyncio

import aiohttp
import pytest

from tests.proxy import wire
from tests.proxy.agent import CHAT
from tests.proxy.pair import pair
from tests.proxy.stand_in import StandIn, StartStandIn
from tests.proxy.wire import Leave

OVER = f"{CHAT}?server=node-b"
TO_B = {"X-Target-Server": "node-b"}
LEAVES = [wire.close, wire.half_close, wire.reset]


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("stream", [False, True])
async def test_before_the_first_byte(stand_in: StartStandIn, leave: Leave, stream: bool) -> None:
    backend = stand_in("--hang")
    async with pair(backend.as_model()) as nodes:
        _, writer = await nodes.a.send_raw({"model": "llm", "stream": stream}, OVER)
        await backend.until_running(1)
        leave(writer)
        await wire.until_forgotten(nodes.b, backend)
        assert not nodes.known.lost


@pytest.mark.parametrize("leave", LEAVES)
async def test_in_the_middle_of_a_stream(stand_in: StartStandIn, leave: Leave) -> None:
    backend = stand_in("--chunks", "100000", "--chunk-interval", "0.005")
    async with pair(backend.as_model()) as nodes:
        reader, writer = await nodes.a.send_raw({"model": "llm", "stream": True}, OVER)
        await reader.readuntil(b"token1")
        leave(writer)
        await wire.until_forgotten(nodes.b, backend)
        assert not nodes.known.lost


async def test_an_agent_that_ends_waits_for_answers_that_pass_as_they_are(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--hang")
    async with pair(backend.as_model()) as nodes:
        _, writer = await nodes.a.send_raw({"model": "llm"}, OVER)
        await backend.until_running(1)
        all_passed = asyncio.create_task(nodes.a.visits.wait_none_away())
        await asyncio.sleep(0)
        assert not all_passed.done()
        wire.close(writer)
        await all_passed


async def test_whoever_follows_a_feed_of_another_node_is_not_waited_for() -> None:
    async with pair() as nodes:
        reader, writer = await nodes.a.connect()
        writer.write(
            b"GET /api/management/events?follow=true&server=node-b HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        await nodes.a.visits.wait_none_away()


async def test_while_it_reads_too_slowly(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "256", "--chunk-bytes", str(1 << 20))
    async with pair(backend.as_model()) as nodes:
        reader, writer = await nodes.a.send_raw({"model": "llm", "stream": True}, OVER)
        await reader.readuntil(b"token0")
        await backend.until(lambda state: state["bytes_sent"] > 1 << 20)
        wire.reset(writer)
        await wire.until_forgotten(nodes.b, backend)


async def test_pings_of_the_target_come_through(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    async with pair(backend.as_model(), settings={"heartbeat_seconds": 0.05}) as nodes:
        reader, _ = await nodes.a.send_raw({"model": "llm", "stream": True}, OVER)
        assert b"x-served-by: node-b/llm" in (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readuntil(b": ping\n\n")
        await reader.readuntil(b": ping\n\n")


async def test_an_engine_that_dies_is_told_by_its_node_alone(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "100000", "--chunk-interval", "0.005")
    async with pair(backend.as_model()) as nodes:
        reader, _ = await nodes.a.send_raw({"model": "llm", "stream": True}, OVER)
        await reader.readuntil(b"token1")
        backend.kill()
        rest = await reader.read()
        assert rest.count(b'data: {"error"') == 1
        assert b'"code":"backend_lost"' in rest
        assert not rest.endswith(b"0\r\n\r\n")
        assert not nodes.known.lost  # the peer is well


async def test_the_agents_end_is_the_end_of_what_it_passes_on(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "100000", "--chunk-interval", "0.005")
    async with pair(backend.as_model(), grace_seconds=0.1) as nodes:
        reader, _ = await nodes.a.send_raw({"model": "llm", "stream": True}, OVER)
        await reader.readuntil(b"token1")
        nodes.a.stop.set()
        rest = await reader.read()
        assert b'"code":"peer_lost"' in rest
        assert not rest.endswith(b"0\r\n\r\n")
        await wire.until_forgotten(nodes.b, backend)


async def test_many_go_over_at_a_time(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            for _ in range(50):
                async with session.post(
                    nodes.a.url(CHAT), json={"model": "llm"}, headers=TO_B
                ) as answer:
                    assert answer.status == 200
        await llm.until(lambda state: state["running"] == 0)
        assert nodes.b.traffic.total == 0
