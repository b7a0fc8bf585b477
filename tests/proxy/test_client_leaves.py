"""A client that leaves ends its work at the backend, at every point, streaming or not.

litellm#37140: a request without streaming whose client had left was never cancelled (scenario 46).
claude-code-proxy PR#114: Starlette's BaseHTTPMiddleware hid that the client left (scenario 47).
kubeai#22: bodies of the backend were never closed (scenario 49). kubeai#9: a cancelled request
still counted as load (scenario 50).
"""

import asyncio
import gc
import os

import pytest

from reconciler.proxy.connection import Connection
from tests.proxy import wire
from tests.proxy.agent import running_agent
from tests.proxy.stand_in import StartStandIn
from tests.proxy.wire import Leave

_BODIES = [{"model": "llm"}, {"model": "llm", "stream": True}]


@pytest.mark.parametrize("leave", [wire.close, wire.half_close, wire.reset])
@pytest.mark.parametrize("body", _BODIES)
async def test_before_the_first_byte(stand_in: StartStandIn, body: object, leave: Leave) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        _, writer = await agent.send_raw(body)
        await backend.until_running(1)
        leave(writer)
        await wire.until_forgotten(agent, backend)


@pytest.mark.parametrize("leave", [wire.close, wire.half_close, wire.reset])
async def test_behind_a_large_body(stand_in: StartStandIn, leave: Leave) -> None:
    """Its last piece may fill what we keep unread: we read on all the same, and hear the end."""
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        _, writer = await agent.send_raw({"model": "llm", "x": "A" * 200_000})
        await backend.until_running(1)
        leave(writer)
        await wire.until_forgotten(agent, backend)


@pytest.mark.parametrize("leave", [wire.close, wire.half_close, wire.reset])
async def test_in_the_middle_of_a_stream(stand_in: StartStandIn, leave: Leave) -> None:
    backend = stand_in("--chunks", "100000", "--chunk-interval", "0.005")
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.send_raw({"model": "llm", "stream": True})
        await reader.readuntil(b"token1")
        leave(writer)
        await wire.until_forgotten(agent, backend)


async def test_between_two_chunks_of_a_stream_that_pauses(stand_in: StartStandIn) -> None:
    """Nothing is written that could fail, so only the watcher can notice."""
    backend = stand_in("--chunks", "2", "--chunk-interval", "3600")
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.send_raw({"model": "llm", "stream": True})
        await reader.readuntil(b"token0")
        writer.close()
        await wire.until_forgotten(agent, backend)


async def test_while_it_reads_too_slowly(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "256", "--chunk-bytes", str(1 << 20))
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.send_raw({"model": "llm", "stream": True})
        await reader.readuntil(b"token0")
        await backend.until(lambda state: state["bytes_sent"] > 1 << 20)
        wire.reset(writer)
        await wire.until_forgotten(agent, backend)


async def test_while_it_does_not_read_at_all(stand_in: StartStandIn) -> None:
    """What is still unsent is kept only as long as some of it can be sent."""
    backend = stand_in("--chunks", "256", "--chunk-bytes", str(1 << 20))
    async with running_agent(backend.as_model(), arrival_seconds=0.2) as agent:
        await backend.state()
        before = _held()
        reader, writer = await agent.send_raw({"model": "llm", "stream": True})
        await reader.readuntil(b"token0")
        await backend.until(lambda state: state["bytes_sent"] > 1 << 20)
        writer.write_eof()
        await wire.until_forgotten(agent, backend)
        tasks, files = before
        await backend.until(lambda _: _held() == (tasks, files + 1))  # the client's own end


async def test_during_the_upload_nothing_reaches_the_backend(stand_in: StartStandIn) -> None:
    backend = stand_in()
    async with running_agent(backend.as_model()) as agent:
        _, writer = await agent.connect()
        writer.write(wire.chat(b"{", length=99))
        await writer.drain()
        writer.close()
        assert (await agent.chat({"model": "llm"})).status == 200
        assert (await backend.state())["served"] == 1


async def test_others_on_the_same_backend_go_on(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "40", "--chunk-interval", "0.01")
    async with running_agent(backend.as_model()) as agent:
        staying = asyncio.create_task(agent.chat({"model": "llm", "stream": True}))
        _, writer = await agent.send_raw({"model": "llm", "stream": True})
        await backend.until_running(2)
        writer.close()
        answer = await staying
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert (await backend.until_running(0))["cancelled"] == 1


async def test_a_client_that_stays_keeps_its_connection(stand_in: StartStandIn) -> None:
    """The end of an answer looks like a disconnect to whoever waits for one."""
    backend = stand_in()
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.send_raw({"model": "llm"})
        for _ in range(3):
            await reader.readuntil(b'"total_tokens": 1}}')
            writer.write(wire.chat(b"{}"))
        await reader.readuntil(b'"total_tokens": 1}}')
        state = await backend.state()
        assert (state["served"], state["cancelled"]) == (4, 0)


async def test_between_two_requests_nothing_is_left_to_cancel(stand_in: StartStandIn) -> None:
    """The answer is whole before the backend's connection is back in its place."""
    backend = stand_in()
    async with running_agent(backend.as_model()) as agent:
        for leave in (wire.close, wire.half_close, wire.reset) * 5:
            reader, writer = await agent.send_raw({"model": "llm"})
            await reader.readuntil(b'"total_tokens": 1}}')
            leave(writer)
        state = await backend.state()
        assert (state["served"], state["cancelled"], state["running"]) == (15, 0, 0)
        assert agent.traffic.total == 0


async def test_a_connection_that_is_over_needs_no_garbage_collector(stand_in: StartStandIn) -> None:
    """It looks at the old after hundreds of thousands of connections only."""
    backend = stand_in("--hang")
    gc.disable()
    try:
        async with running_agent(backend.as_model()) as agent:
            for leave in (wire.close, wire.half_close, wire.reset) * 3:
                _, writer = await agent.send_raw({"model": "llm"})
                await backend.until_running(1)
                leave(writer)
                await backend.until(lambda state: state["connections"] == 1)
            left = [each for each in gc.get_objects() if isinstance(each, Connection)]
            assert left == []
    finally:
        gc.enable()


def _held() -> tuple[int, int]:
    """Our tasks and open files."""
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))


async def test_fifty_that_leave_leave_nothing(stand_in: StartStandIn) -> None:
    """kubeai#22: bodies were never closed (scenario 49)."""
    backend = stand_in("--chunks", "100000", "--chunk-interval", "0.01")
    async with running_agent(backend.as_model()) as agent:
        await agent.get("/healthz")
        await backend.until_running(0)
        before = _held()
        streams = [await agent.send_raw({"model": "llm", "stream": True}) for _ in range(50)]
        for reader, _ in streams:
            await reader.readuntil(b"token1")
        for _, writer in streams:
            writer.close()
            await writer.wait_closed()
        state = await backend.until(lambda s: s["connections"] == 1 and _held() == before)
        assert (state["running"], state["cancelled"]) == (0, 50)
        assert agent.traffic.total == 0
