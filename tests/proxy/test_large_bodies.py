"""Large bodies hold nobody else up, and take no more room together than they may."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tests.proxy.agent import CHAT, Agent, running_agent
from tests.proxy.stand_in import StandIn, StartStandIn

_LARGE = json.dumps({"model": "llm", "x": "A" * 900_000}).encode()
_ROOM_FOR_ONE = {"together_bytes": 1_000_000}


async def _take_the_room(agent: Agent) -> asyncio.StreamWriter:
    """By all of a large body but its last byte. It may itself be refused, where the request that
    asks whether there is room left was faster: then another one takes it.
    """
    head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(_LARGE)}\r\n\r\n".encode()
    while True:
        reader, writer = await agent.connect()
        writer.write(head + _LARGE[:-1])
        await writer.drain()
        refused = asyncio.create_task(reader.read(1))
        while not refused.done():
            if (await agent.chat(_LARGE)).status == 503:
                refused.cancel()
                return writer
        writer.close()


async def _until(agent: Agent, status: int) -> None:
    """Send a large body again and again until it is answered like that."""
    while (await agent.chat(_LARGE)).status != status:
        pass


async def test_bodies_that_are_hard_to_read_do_not_stop_the_others(llm: StandIn) -> None:
    """production-stack#431: what blocked stopped the event loop (scenario 60)."""
    nested = b'{"model":1,"\\u0061":[]},' * 9_000
    body = b'{"x":[' + nested + b"{}" + b",{}" * 300_000 + b'],"model":"llm"}'
    async with running_agent(llm.as_model()) as agent:
        answers = asyncio.gather(*(agent.chat(body) for _ in range(8)))
        healthy = 0
        while not answers.done():
            assert (await agent.get("/healthz")).status == 200
            healthy += 1
        assert [answer.status for answer in await answers] == [200] * 8
        assert healthy >= 8


async def test_large_bodies_do_not_wait_for_threads_of_others(llm: StandIn) -> None:
    """The loop's work on disks and processes has asyncio's own pool."""
    loop, freed = asyncio.get_running_loop(), Event()
    with ThreadPoolExecutor(1) as pool:
        loop.set_default_executor(pool)
        busy = loop.run_in_executor(None, freed.wait)
        try:
            async with running_agent(llm.as_model()) as agent:
                assert (await agent.chat(_LARGE)).status == 200
                assert not busy.done()
        finally:
            freed.set()


async def test_bodies_that_take_too_much_room_together_are_503(llm: StandIn) -> None:
    async with running_agent(llm.as_model(), settings=_ROOM_FOR_ONE) as agent:
        await _take_the_room(agent)
        refused = await agent.chat(_LARGE)
        small = await agent.chat({"model": "llm"})
        assert refused.error["code"] == "bodies_too_large"
        assert refused.headers["Retry-After"] == "5"
        assert refused.headers["X-Xgen-Not-Started"] == "1"
        assert small.status == 200


async def test_a_client_that_leaves_gives_its_room_back(llm: StandIn) -> None:
    async with running_agent(llm.as_model(), settings=_ROOM_FOR_ONE) as agent:
        upload = await _take_the_room(agent)
        upload.close()
        await _until(agent, 200)


async def test_a_body_gives_its_room_back_before_its_answer_ends(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "2", "--chunk-interval", "3600")
    body = {"model": "llm", "x": "A" * 900_000, "stream": True}
    async with running_agent(backend.as_model(), settings=_ROOM_FOR_ONE) as agent:
        for running in (1, 2):
            reader, _ = await agent.send_raw(body)
            await reader.readuntil(b"token0")
            assert (await backend.state())["running"] == running
