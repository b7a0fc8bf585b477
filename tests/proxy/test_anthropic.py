"""`/v1/messages`: what goes wrong is said as Anthropic's clients expect it."""

import json

import pytest

from tests.proxy.agent import running_agent
from tests.proxy.builders import model
from tests.proxy.raw_engine import saying
from tests.proxy.stand_in import StandIn, StartStandIn

MESSAGES = "/v1/messages"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"[]", 400, "invalid_request_error"),
        ({"model": "none"}, 404, "not_found_error"),
        ({"model": "big"}, 503, "overloaded_error"),
        (b" " * 2000, 413, "request_too_large"),
    ],
)
@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens"])
async def test_our_errors_have_its_shape(path: str, body: object, status: int, kind: str) -> None:
    async with running_agent(model("big"), body_bytes=1000) as agent:
        answer = await agent.chat(body, path, headers={"X-Request-Id": "id-1"})
        assert answer.status == status
        assert set(answer.json) == {"type", "error", "request_id"}
        assert (answer.json["type"], answer.json["request_id"]) == ("error", "id-1")
        assert answer.json["error"]["type"] == kind
        assert answer.json["error"]["message"].startswith("cannot ")


async def test_a_full_queue_is_its_rate_limit(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    busy = backend.as_model(max_in_flight=1)
    async with running_agent(busy, settings={"queue_length": 0}) as agent:
        await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        answer = await agent.chat({"model": "llm"}, MESSAGES)
        assert (answer.status, answer.json["error"]["type"]) == (429, "rate_limit_error")


async def test_its_own_headers_reach_the_engine_and_its_key_does_not(llm: StandIn) -> None:
    sent = {"x-api-key": "mine", "anthropic-version": "2023-06-01", "anthropic-beta": "x"}
    async with running_agent(llm.as_model()) as agent:
        assert (await agent.chat({"model": "llm"}, MESSAGES, headers=sent)).status == 200
        seen = dict(await llm.last_headers())
        assert seen["anthropic-version"] == "2023-06-01"
        assert seen["anthropic-beta"] == "x"
        assert "x-api-key" not in seen


async def test_a_stream_that_dies_ends_with_its_error_event(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "10", "--die-mid-stream", "--chunk-interval", "0.01")
    async with running_agent(backend.as_model()) as agent:
        reader, _ = await agent.send_raw({"model": "llm", "stream": True}, MESSAGES)
        last = (await reader.read()).rpartition(b"event: error\n")[2]
        error = json.loads(last.removeprefix(b"data: ").partition(b"\n")[0])
        assert error["type"] == "error"
        assert error["error"]["type"] == "api_error"


async def test_an_engines_error_behind_a_heartbeat_is_an_error_event() -> None:
    said = b'{"type":"error","error":{"type":"invalid_request_error","message":"no"}}'
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(said)
    async with (
        saying(b"", head + said) as (engine, go_on),
        running_agent(engine, settings={"heartbeat_seconds": 0.02}) as agent,
    ):
        reader, _ = await agent.send_raw({"model": "llm", "stream": True}, MESSAGES)
        await reader.readuntil(b": ping\n\n")
        go_on.set()
        await reader.readuntil(b"event: error\ndata: " + said + b"\n\n")
