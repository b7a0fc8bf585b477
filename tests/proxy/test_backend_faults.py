"""Backends that refuse, reset, die or hang."""

import asyncio
import fcntl
import gc
import json
import socket
import termios
from asyncio import Event
from dataclasses import replace

import pytest

from tests.proxy.agent import Agent, running_agent
from tests.proxy.builders import model
from tests.proxy.raw_engine import saying
from tests.proxy.stand_in import StartStandIn


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


async def _raw_answer(agent: Agent, body: object) -> tuple[bytes, bytes]:
    """Head and body as they are on the wire, until the connection ends."""
    reader, _ = await agent.send_raw(body)
    head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    return head, rest


async def test_a_refused_connection_is_503_that_certainly_did_not_start() -> None:
    async with running_agent(model(port=_closed_port())) as agent:
        answer = await agent.chat({"model": "llm"})
        assert (answer.status, answer.error["code"]) == (503, "backend_unreachable")
        assert answer.headers["X-Xgen-Not-Started"] == "1"
        assert answer.headers["Retry-After"]
        assert answer.headers["X-Served-By"] == "node-a/llm"


async def test_a_reset_before_the_first_byte_is_502_and_not_sent_again(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--reset-before-first-byte")
    async with running_agent(backend.as_model()) as agent:
        answer = await agent.chat({"model": "llm"})
        assert (answer.status, answer.error["code"]) == (502, "backend_lost")
        assert "X-Xgen-Not-Started" not in answer.headers
        assert answer.headers["X-Xgen-Unanswered"] == "1"
        assert (await backend.state())["seen"] == 1


async def test_a_kept_connection_that_is_stale_is_tried_once_more(stand_in: StartStandIn) -> None:
    """On a fresh connection: the other kept ones are as stale."""
    backend = stand_in("--reset-reused", "--first-byte-after", "0.1")
    async with running_agent(backend.as_model()) as agent:
        together = await asyncio.gather(*(agent.chat({"model": "llm"}) for _ in range(3)))
        alone = await agent.chat({"model": "llm"})
        assert [answer.status for answer in (*together, alone)] == [200] * 4
        assert (await backend.state())["served"] == 4


async def test_a_request_that_kills_its_backend_is_not_sent_to_it_again(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--crash-after-requests", "1")
    async with running_agent(backend.as_model()) as agent:
        killing = await agent.chat({"model": "llm"})
        backend.wait()
        after = await agent.chat({"model": "llm"})
        assert (killing.status, killing.error["code"]) == (502, "backend_lost")
        assert (after.status, after.error["code"]) == (503, "backend_unreachable")


@pytest.mark.parametrize("fault", ["--die-mid-stream", "--reset-mid-stream"])
async def test_a_stream_that_dies_ends_with_an_error_event_and_broken(
    stand_in: StartStandIn, fault: str
) -> None:
    backend = stand_in("--chunks", "10", fault, "--chunk-interval", "0.01")
    async with running_agent(backend.as_model()) as agent:
        head, body = await _raw_answer(agent, {"model": "llm", "stream": True})
        last_event = body.split(b"data: ")[-1].partition(b"\n\n")[0]
        assert b"transfer-encoding: chunked" in head.lower()
        assert b"token3" in body
        assert json.loads(last_event)["error"]["code"] == "backend_lost"
        assert not body.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in body


async def test_a_whole_answer_that_dies_ends_short(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "10", "--chunk-bytes", "1000", "--die-mid-stream")
    async with running_agent(backend.as_model()) as agent:
        head, body = await _raw_answer(agent, {"model": "llm"})
        lengths = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
        assert len(lengths) == 1
        assert 0 < len(body) < int(lengths[0].split(b":")[1])


@pytest.mark.parametrize("body", [{"model": "llm"}, {"model": "llm", "stream": True}])
async def test_a_killed_backend_ends_its_requests_before_their_first_byte(
    stand_in: StartStandIn, body: object
) -> None:
    """dynamo#13088: a request hung for ever after its worker had left (scenario 48)."""
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        waiting = asyncio.create_task(agent.chat(body))
        await backend.until_running(1)
        backend.kill()
        answer = await waiting
        assert (answer.status, answer.error["code"]) == (502, "backend_lost")
        assert agent.traffic.total == 0


async def test_a_killed_backend_ends_its_streams(stand_in: StartStandIn) -> None:
    """dynamo#13088 (scenario 48), for a stream that pauses."""
    backend = stand_in("--chunks", "2", "--chunk-interval", "3600")
    async with running_agent(backend.as_model()) as agent:
        reader, _ = await agent.send_raw({"model": "llm", "stream": True})
        await reader.readuntil(b"token0")
        backend.kill()
        rest = await reader.read()
        assert b'"code":"backend_lost"' in rest
        assert not rest.endswith(b"0\r\n\r\n")


async def test_routing_begins_with_readiness_and_not_with_the_process(
    stand_in: StartStandIn,
) -> None:
    """production-stack#619: requests were routed before the backend was ready (scenario 59)."""
    backend = stand_in()
    async with running_agent(model("llm", reason="waiting for /health")) as agent:
        loading = await agent.chat({"model": "llm"})
        agent.board.set(backend.as_model())
        loaded = await agent.chat({"model": "llm"})
        assert (loading.status, loading.error["code"]) == (503, "model_not_ready")
        assert "loading: waiting for /health" in loading.error["message"]
        assert loading.headers["Retry-After"] == "5"
        assert loaded.status == 200
        assert (await backend.state())["served"] == 1


async def test_a_backend_that_still_loads_answers_for_itself(stand_in: StartStandIn) -> None:
    backend = stand_in("--ready-after", "3600")
    async with running_agent(backend.as_model()) as agent:
        answer = await agent.chat({"model": "llm"})
        assert (answer.status, answer.error["message"]) == (503, "Loading model")


async def test_an_answer_that_is_no_http_is_502() -> None:
    async with (
        saying(b"SSH-2.0-OpenSSH\r\n\r\n") as (nonsense, _),
        running_agent(nonsense) as agent,
    ):
        answer = await agent.chat({"model": "llm"})
        assert (answer.status, answer.error["code"]) == (502, "backend_lost")


@pytest.mark.parametrize("status", ["999", "600", "099", "101"])
async def test_a_status_that_is_none_of_an_answer_is_502(status: str) -> None:
    said = f"HTTP/1.1 {status} Odd\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    async with saying(said) as (odd, _), running_agent(odd) as agent:
        answer = await agent.chat({"model": "llm"})
        assert (answer.status, answer.error["code"]) == (502, "backend_lost")
        assert answer.headers["X-Served-By"] == "node-a/llm"
        assert agent.traffic.total == 0


async def test_an_answer_that_stops_being_http_ends_broken() -> None:
    """dynamo#13088 (scenario 48): the client library leaves its reader waiting for ever here."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    good = b"Transfer-Encoding: chunked\r\n\r\n6\r\n: hi\n\n\r\n"
    async with saying(head + good, b"zz\r\n") as (broken, go_on), running_agent(broken) as agent:
        reader, _ = await agent.send_raw({"model": "llm"})
        await reader.readuntil(b": hi")
        go_on.set()
        rest = await reader.read()
        assert b'"code":"backend_lost"' in rest
        assert not rest.endswith(b"0\r\n\r\n")
        assert agent.traffic.total == 0


async def test_an_answer_may_have_a_large_head() -> None:
    headers = b"X-Long: " + b"x" * 60_000 + b"\r\n" + b"X-Many: 1\r\n" * 500
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + headers + b"\r\n"
    async with saying(head + b"{}") as (wordy, _), running_agent(wordy) as agent:
        reader, _ = await agent.send_raw({"model": "llm"})
        answer = b""
        while not answer.endswith(b"\r\n\r\n{}"):
            answer += await reader.read(65536)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.count(b"x-many: 1\r\n") == 500


async def _until_stalled(writer: asyncio.StreamWriter) -> None:
    """Until nothing more arrives, because the reader has enough."""
    waiting, before = b"", b"-"
    while waiting != before:
        before = waiting
        await asyncio.sleep(0.1)
        waiting = fcntl.ioctl(writer.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))


async def test_an_engine_that_answers_and_goes_in_mid_upload_is_no_error_of_ours() -> None:
    """It reads no further, so that our writer waits when the connection is reset."""
    answered = Event()
    errors: list[object] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await _until_stalled(writer)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await answered.wait()
        writer.transport.abort()

    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    busy = model(port=server.sockets[0].getsockname()[1])
    async with server, running_agent(busy) as agent:
        assert (await agent.chat({"model": "llm", "x": "A" * (30 << 20)})).status == 413
        answered.set()
        await agent.get("/healthz")  # the reset has arrived by then
    gc.collect()
    assert errors == []


async def test_draining_refuses_new_work_and_lets_the_old_end(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "20", "--chunk-interval", "0.02")
    async with running_agent(backend.as_model()) as agent:
        old = asyncio.create_task(agent.chat({"model": "llm", "stream": True}))
        await backend.until_running(1)
        serving = agent.board.now.models[0]
        agent.board.now = replace(agent.board.now, draining=True)
        new = await agent.chat({"model": "llm"})
        assert serving.endpoint is not None
        await agent.traffic.wait_idle(serving.endpoint.nonce)
        assert (new.status, new.error["code"]) == (503, "node_draining")
        assert (await old).body.endswith(b"data: [DONE]\n\n")
