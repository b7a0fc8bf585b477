"""`/v1/messages`: what goes wrong is said as Anthropic's clients expect it."""

import json
from dataclasses import replace
from typing import cast

import pytest
from structlog.testing import capture_logs

from tests.proxy.agent import Answer, running_agent
from tests.proxy.builders import model
from tests.proxy.raw_engine import saying
from tests.proxy.stand_in import StandIn, StartStandIn
from tests.proxy.wire import read_answer

MESSAGES = "/v1/messages"
_PATHS = [MESSAGES, f"{MESSAGES}/count_tokens", f"/api/inference{MESSAGES}"]


def _is_anthropics(answer: Answer, status: int, kind: str) -> None:
    assert answer.status == status
    assert set(answer.json) == {"type", "error", "request_id"}
    assert answer.json["type"] == "error"
    assert answer.json["request_id"] == answer.headers["x-request-id"]
    assert answer.json["error"]["type"] == kind
    assert answer.json["error"]["message"].startswith("cannot ")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"[]", 400, "invalid_request_error"),
        ({"model": "none"}, 404, "not_found_error"),
        ({"model": "big"}, 503, "overloaded_error"),
        (b" " * 2000, 413, "request_too_large"),
    ],
)
@pytest.mark.parametrize("path", _PATHS)
async def test_our_errors_have_its_shape(path: str, body: object, status: int, kind: str) -> None:
    async with running_agent(model("big"), body_bytes=1000) as agent:
        _is_anthropics(await agent.chat(body, path), status, kind)


@pytest.mark.parametrize(
    ("method", "more", "headers", "status", "kind"),
    [
        ("GET", "", {}, 405, "invalid_request_error"),
        ("POST", "/batches", {}, 404, "not_found_error"),
        ("POST", "/", {}, 404, "not_found_error"),
        ("POST", "?server=node-z", {}, 404, "not_found_error"),
        ("POST", "", {"X-Target-Server": "node-z"}, 404, "not_found_error"),
        ("POST", "", {"Content-Encoding": "br"}, 415, "invalid_request_error"),
    ],
)
@pytest.mark.parametrize("path", _PATHS)
async def test_errors_around_the_path_have_it_too(
    path: str, method: str, more: str, headers: dict[str, str], status: int, kind: str
) -> None:
    async with running_agent() as agent:
        answer = await agent.request(method, path + more, headers=headers)
        _is_anthropics(answer, status, kind)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("Host: a\r\nHost: b\r\n\r\n", 400),
        ("Host: a\r\nno colon\r\n\r\n", 400),
        (f"Host: a\r\nX: {'x' * 70_000}\r\n\r\n", 431),
        ("Host: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\nzz\r\n", 400),
    ],
)
@pytest.mark.parametrize("path", [*_PATHS, f"{MESSAGES}/x?a=1"])
async def test_what_is_no_http_behind_the_path_is_told_so_in_it(
    path: str, lines: str, status: int
) -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        writer.write(f"POST {path} HTTP/1.1\r\n{lines}".encode())
        _is_anthropics(await read_answer(reader), status, "invalid_request_error")


async def test_the_end_of_the_agent_and_of_the_engine_have_it_too() -> None:
    async with saying(b"nonsense\r\n\r\n") as (engine, _), running_agent(engine) as agent:
        _is_anthropics(await agent.chat({"model": "llm"}, MESSAGES), 502, "api_error")
        agent.board.now = replace(agent.board.now, draining=True)
        _is_anthropics(await agent.chat({"model": "llm"}, MESSAGES), 503, "overloaded_error")


async def test_our_own_fault_has_it_too() -> None:
    broken = cast(int, "no number")
    async with running_agent(model(port=1, max_in_flight=broken)) as agent:
        with capture_logs():
            answer = await agent.chat({"model": "llm"}, MESSAGES)
        _is_anthropics(answer, 500, "api_error")


@pytest.mark.parametrize(
    "path", ["/v1/messagesx", "/v1/messages%20", "/v1/message", "//v1/messages"]
)
async def test_other_paths_have_openais(path: str) -> None:
    async with running_agent() as agent:
        assert (await agent.chat({}, path)).error["code"] == "unknown_path"


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
