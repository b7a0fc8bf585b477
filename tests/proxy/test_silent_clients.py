"""Connections on which nothing comes any more end by themselves, whatever came before."""

import pytest

from tests.proxy import wire
from tests.proxy.agent import running_agent
from tests.proxy.wire import HEALTH, read_answer

_HUGE = b"Host: a\r\nContent-Length: 1000000000\r\n\r\n"
_EARLY = {
    404: b"POST /nope HTTP/1.1\r\n",
    405: b"POST /healthz HTTP/1.1\r\n",
    413: b"POST /v1/completions HTTP/1.1\r\n",
    415: b"POST /v1/completions HTTP/1.1\r\nContent-Encoding: br\r\n",
}
_SLOW = 3600.0


async def test_before_any_request() -> None:
    async with running_agent(arrival_seconds=0.1) as agent:
        reader, writer = await agent.connect()
        writer.write(b"\r\n")
        assert await reader.read() == b""


async def test_between_two_requests() -> None:
    async with running_agent(arrival_seconds=_SLOW, keepalive_seconds=0.1) as agent:
        reader, writer = await agent.connect()
        writer.write(HEALTH)
        await read_answer(reader)
        assert await reader.read() == b""


async def test_an_empty_line_is_no_request() -> None:
    async with running_agent(arrival_seconds=_SLOW, keepalive_seconds=0.2) as agent:
        reader, writer = await agent.connect()
        writer.write(HEALTH)
        await read_answer(reader)
        writer.write(b"\r\n")
        assert await reader.read() == b""


async def test_a_head_has_one_time_limit_for_all_its_pieces() -> None:
    async with running_agent(arrival_seconds=0.3) as agent:
        _, writer = await agent.connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: ")
        await wire.until_gone(writer)


@pytest.mark.parametrize("status", _EARLY)
async def test_after_an_answer_that_did_not_wait_for_its_body(status: int) -> None:
    async with running_agent(linger_seconds=0.3, arrival_seconds=_SLOW) as agent:
        reader, writer = await agent.connect()
        writer.write(_EARLY[status] + _HUGE)
        answer = await read_answer(reader)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert await reader.read() == b""
        await wire.until_gone(writer)


async def test_an_answer_that_did_not_wait_reaches_clients_that_send_on() -> None:
    """Closed at once the connection would be reset, and the answer lost."""
    async with running_agent(body_bytes=1 << 20) as agent:
        reader, writer = await agent.connect()
        writer.write(wire.chat(b"", length=16 << 20))
        for _ in range(16):
            writer.write(b"x" * (1 << 20))
            await writer.drain()
        assert (await read_answer(reader)).error["code"] == "body_too_large"
        assert await reader.read() == b""


async def test_the_end_of_the_agent_does_not_wait_for_them() -> None:
    async with running_agent(arrival_seconds=_SLOW, keepalive_seconds=_SLOW) as agent:
        idle, begun, early = [await agent.connect() for _ in range(3)]
        idle[1].write(HEALTH)
        begun[1].write(HEALTH[:9])
        early[1].write(_EARLY[404] + _HUGE)
        await read_answer(idle[0])
        await read_answer(early[0])
        agent.stop.set()
        await agent.server


async def test_a_body_that_comes_slowly_may_come() -> None:
    async with running_agent(arrival_seconds=0.3) as agent:
        reader, writer = await agent.connect()
        writer.write(wire.chat(b"", length=60))
        for _ in range(60):
            writer.write(b"x")
            await writer.drain()
        assert (await read_answer(reader)).error["code"] == "invalid_json"
