"""Comments while an engine says nothing. litellm#34819, #34374: no byte during a long prefill,
and a load balancer cut the connection after 60 s (scenario 45).
"""

import asyncio
import json

import pytest

from tests.proxy.agent import CHAT, running_agent
from tests.proxy.builders import model
from tests.proxy.raw_engine import saying
from tests.proxy.stand_in import StartStandIn

_OFTEN = {"heartbeat_seconds": 0.02}
_PING = b": ping\n\n"
_STREAM = {"model": "llm", "stream": True}
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


async def _streamed(then: bytes) -> bytes:
    """All that a client gets of an engine that says `then`, after a silence; whole, or it fails."""
    async with (
        saying(b"", then) as (engine, go_on),
        running_agent(engine, settings=_OFTEN) as agent,
        agent.session.post(agent.url(CHAT), json=_STREAM) as response,
    ):
        assert response.status == 200
        go_on.set()
        return (await response.read()).replace(_PING, b"")


def _answer(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _data(event: bytes) -> bytes:
    """The lines put together, as a client does."""
    return b"\n".join(line.removeprefix(b"data: ") for line in event.splitlines()).strip()


async def test_a_long_prefill_is_bridged(stand_in: StartStandIn) -> None:
    backend = stand_in("--first-byte-after", "0.3")
    async with running_agent(backend.as_model(), settings=_OFTEN) as agent:
        answer = await agent.chat(_STREAM)
        assert answer.status == 200
        assert answer.body.startswith(_PING)
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert answer.body.replace(_PING, b"").startswith(b'data: {"id"')
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["X-Served-By"] == "node-a/llm"


async def test_an_engine_that_is_quick_keeps_its_own_head(stand_in: StartStandIn) -> None:
    backend = stand_in()
    async with running_agent(backend.as_model()) as agent:
        answer = await agent.chat(_STREAM)
        assert answer.headers["X-Stand-In"] == "yes"
        assert _PING not in answer.body


async def test_an_answer_that_is_no_stream_is_left_alone(stand_in: StartStandIn) -> None:
    backend = stand_in("--first-byte-after", "0.3")
    async with running_agent(backend.as_model(), settings=_OFTEN) as agent:
        answer = await agent.chat({"model": "llm"})
        assert answer.json["object"] == "chat.completion"


async def test_pauses_between_events_are_bridged_too(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "2", "--chunk-interval", "0.3")
    async with running_agent(backend.as_model(), settings=_OFTEN) as agent:
        answer = await agent.chat(_STREAM)
        first, _, rest = answer.body.partition(b"\n\n")
        assert b"token0" in first
        assert rest.startswith(_PING)
        assert b"token1" in rest


async def test_an_event_is_never_torn(stand_in: StartStandIn) -> None:
    head = _EVENTS + b"Transfer-Encoding: chunked\r\n\r\n"
    async with (
        saying(head + b"8\r\n: o\n\ndat\r\n", b"6\r\na: 1\n\n\r\n0\r\n\r\n") as (engine, go_on),
        running_agent(engine, settings=_OFTEN) as agent,
    ):
        reader, _ = await agent.send_raw(_STREAM)
        await reader.readuntil(b"dat\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        go_on.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"6\r\na: 1\n\n\r\n0\r\n\r\n"


async def test_a_stream_of_known_length_gets_nothing_in_between() -> None:
    head = _EVENTS + b"Content-Length: 16\r\n\r\n"
    async with (
        saying(head + b"data: 1\n", b"\ndata: 2") as (engine, go_on),
        running_agent(engine, settings=_OFTEN) as agent,
    ):
        reader, _ = await agent.send_raw(_STREAM)
        await reader.readuntil(b"data: 1\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        go_on.set()
        assert await reader.readexactly(8) == b"\ndata: 2"


@pytest.mark.parametrize("status", ["400 Bad Request", "503 Service Unavailable"])
async def test_an_error_of_the_engine_is_the_streams_last_event(status: str) -> None:
    error = {"error": {"message": "too long", "type": "invalid_request_error", "code": 400}}
    event = await _streamed(_answer(status, json.dumps(error, indent=1).encode()))
    assert event.endswith(b"}\n\n")
    assert json.loads(_data(event)) == error


@pytest.mark.parametrize("body", [b"Internal Server Error", b'{"detail":"no"}', b""])
async def test_an_error_that_no_client_would_know_is_put_into_words(body: bytes) -> None:
    error = json.loads(_data(await _streamed(_answer("500 Oops", body))))["error"]
    assert error["code"] == "backend_error"
    assert "status 500" in error["message"]


async def test_an_answer_of_an_engine_that_does_not_stream_becomes_an_event() -> None:
    event = await _streamed(_answer("200 OK", b'{\n "x": 1\n}'))
    assert event == b'data: {\ndata:  "x": 1\ndata: }\n\n'


async def test_an_engine_that_dies_behind_the_head_ends_it_broken(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model(), settings=_OFTEN) as agent:
        reader, _ = await agent.send_raw(_STREAM)
        await reader.readuntil(_PING)
        backend.kill()
        rest = await reader.read()
        assert b'"code":"backend_lost"' in rest
        assert not rest.endswith(b"0\r\n\r\n")
        assert agent.traffic.total == 0


async def test_a_client_that_leaves_after_a_heartbeat_ends_its_work(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model(), settings=_OFTEN) as agent:
        reader, writer = await agent.send_raw(_STREAM)
        await reader.readuntil(_PING)
        writer.close()
        await backend.until(lambda state: state["cancelled"] == 1)


async def test_nothing_begins_before_an_engine_has_the_request() -> None:
    """Its status may still be a better answer: it takes no connection here."""
    async with running_agent(model(port=1), settings={"heartbeat_seconds": 0.0}) as agent:
        assert (await agent.chat(_STREAM)).error["code"] == "backend_unreachable"
