"""Requests that follow one another without waiting for answers, and clients that leave then."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.proxy import wire
from tests.proxy.agent import running_agent
from tests.proxy.stand_in import StartStandIn
from tests.proxy.wire import HEALTH, Leave, read_answer

_ASK = wire.chat(b'{"model":"llm"}')
_ASK_STREAM = wire.chat(b'{"model":"llm","stream":true}')
_FOLLOWING = [HEALTH, HEALTH[:9], _ASK, b"no HTTP\r\n\r\n", b"x" * 300_000]
_LEAVING = [wire.close, wire.half_close, wire.reset]


async def test_they_are_answered_in_order(stand_in: StartStandIn) -> None:
    backend = stand_in("--first-byte-after", "0.1")
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(_ASK + HEALTH + _ASK[:-5])
        first, second = await read_answer(reader), await read_answer(reader)
        writer.write(_ASK[-5:])
        third = await read_answer(reader)
        assert b"total_tokens" in first.body
        assert second.json == {"status": "ok"}
        assert b"total_tokens" in third.body
        assert first.headers["x-request-id"] != second.headers["x-request-id"]


@pytest.mark.parametrize("leave", _LEAVING)
@pytest.mark.parametrize("following", _FOLLOWING)
async def test_a_client_that_leaves_behind_them_is_noticed(
    stand_in: StartStandIn, following: bytes, leave: Leave
) -> None:
    """Before the first byte. uvicorn stops to read while a request waits for its turn."""
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        _, writer = await agent.connect()
        writer.write(_ASK + following)
        await backend.until_running(1)
        leave(writer)
        await wire.until_forgotten(agent, backend)


@pytest.mark.parametrize("leave", _LEAVING)
async def test_a_client_that_leaves_behind_them_in_mid_stream_leaves_quietly(
    stand_in: StartStandIn, leave: Leave
) -> None:
    backend = stand_in("--chunks", "100000", "--chunk-interval", "0.005")
    with capture_logs() as logs:
        async with running_agent(backend.as_model()) as agent:
            reader, writer = await agent.connect()
            writer.write(_ASK_STREAM + HEALTH)
            await reader.readuntil(b"token1")
            leave(writer)
            await wire.until_forgotten(agent, backend)
    assert logs == []


async def test_what_waits_when_the_client_leaves_never_starts(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        _, writer = await agent.connect()
        writer.write(_ASK + _ASK)
        await backend.until_running(1)
        writer.close()
        await wire.until_forgotten(agent, backend)
        assert (await backend.state())["seen"] == 1


async def test_more_than_is_kept_ends_the_connection_after_the_answer(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--first-byte-after", "0.2")
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(_ASK)
        await backend.until_running(1)
        writer.write(_ASK[:-2] + b" " * 1_000_000)
        answer = await read_answer(reader)
        assert answer.headers["connection"] == "close"
        assert b"total_tokens" in answer.body
        assert await reader.read() == b""
        assert (await backend.state())["seen"] == 1


async def test_a_large_request_right_behind_an_answer_is_not_ahead_of_it(
    stand_in: StartStandIn,
) -> None:
    """The client knows the end by the length, maybe before we heard it from the backend."""
    backend = stand_in()
    body = b'{"model":"llm","x":"' + b"x" * 300_000 + b'"}'
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        for _ in range(20):
            writer.write(wire.chat(body))
            assert (await read_answer(reader)).status == 200


async def test_nothing_is_answered_behind_a_last_request() -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        last = HEALTH.replace(b"Host: a", b"Connection: close")
        writer.write(last + HEALTH)
        assert (await read_answer(reader)).headers["connection"] == "close"
        assert await reader.read() == b""


async def test_one_that_stops_arriving_behind_an_answer_is_given_up(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--first-byte-after", "0.3")
    async with running_agent(backend.as_model(), arrival_seconds=0.1) as agent:
        reader, writer = await agent.connect()
        writer.write(_ASK + HEALTH[:9])
        assert (await read_answer(reader)).status == 200
        assert await reader.read() == b""


async def test_the_end_of_the_agent_does_not_wait_for_what_waits(stand_in: StartStandIn) -> None:
    backend = stand_in("--first-byte-after", "0.3")
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(_ASK + _ASK)
        await backend.until_running(1)
        agent.stop.set()
        assert (await read_answer(reader)).status == 200
        assert await reader.read() == b""
        await agent.server
        await asyncio.wait_for(backend.until_running(0), 5)
        assert (await backend.state())["seen"] == 1
