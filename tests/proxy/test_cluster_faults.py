"""Peers and backends that fail at each stage: what is sent again, once, and what is not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.proxy.agent import Agent, Answer
from tests.proxy.builders import model
from tests.proxy.fleet import Fleet, fleet, raw_peer, until
from tests.proxy.forms import CONTENT_TYPE, form, part
from tests.proxy.raw_engine import saying as engine_saying
from tests.proxy.stand_in import StandIn, StartStandIn
from tests.proxy.wire import reset

ASK = {"model": "llm"}
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)


def saying(answer: bytes, *, then_reset: bool = False) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()
        if then_reset:
            reset(writer)

    return handle


def whole(status: str, *fields: str, body: bytes = b"{}") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join((*head, "", "")).encode() + body


NOT_STARTED, UNANSWERED = "X-Xgen-Not-Started: 1", "X-Xgen-Unanswered: 1"
RESENT = {
    "a close": (saying(b""), "lost"),
    "a reset": (saying(b"", then_reset=True), "lost"),
    "503": (saying(whole("503 Busy", NOT_STARTED, "Retry-After: 5")), "not_started"),
    "429": (saying(whole("429 Busy", NOT_STARTED)), "not_started"),
    "404": (saying(whole("404 No", NOT_STARTED)), "not_started"),
    "421": (saying(whole("421 Not me", NOT_STARTED)), "not_started"),
    "502": (saying(whole("502 Bad Gateway", UNANSWERED)), "lost"),
}
SHOWN = {
    "503": (whole("503 Busy", "Retry-After: 5"), 503),
    "429": (whole("429 Busy"), 429),
    "500": (whole("500 Broken", NOT_STARTED), 500),
    "404": (whole("404 No"), 404),
    "502": (whole("502 Bad Gateway"), 502),
    "503, unanswered": (whole("503 Busy", UNANSWERED), 503),
}
BROKEN = {
    "garbage": saying(b"\x16\x03\x01 this is not HTTP\r\n\r\n"),
    "half a head": saying(b"HTTP/1.1 200 OK\r\nContent-Le", then_reset=True),
    "an interim status": saying(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"),
}


@asynccontextmanager
async def beside(handle: Handler, **models: Any) -> AsyncIterator[tuple[Fleet, list[bytes]]]:
    """A fleet whose node-a prefers the raw peer node-z; with what that was connected to."""
    came: list[bytes] = []

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(b"")
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
        async with fleet(**models) as nodes:
            port = server.sockets[0].getsockname()[1]
            nodes.mates["node-a"].raw = [raw_peer(port, model("llm"))]
            if "b" in models:
                nodes.load("b", in_flight=5)
            yield nodes, came
            await until(lambda: nodes.under_way == 0)
        server.close()


async def resent(agent: Agent) -> dict[str, float]:
    page = (await agent.get("/metrics")).body.decode()
    found = {}
    for cause in ("unreachable", "lost", "not_started"):
        name = f'xgen_requests_resent_total{{cause="{cause}"}} '
        found[cause] = float(page.partition(name)[2].partition("\n")[0])
    return {cause: count for cause, count in found.items() if count}


def served_at_b(answer: Answer) -> None:
    assert (answer.status, answer.headers["x-served-by"]) == (200, "node-b/llm")
    assert answer.headers.getall("x-retried") == ["1"]


@pytest.mark.parametrize("stage", RESENT)
async def test_what_has_not_begun_is_sent_to_another_replica(llm: StandIn, stage: str) -> None:
    handle, cause = RESENT[stage]
    async with beside(handle, a=(), b=(llm.as_model(),)) as (nodes, came):
        served_at_b(await nodes["a"].chat(ASK))
        assert len(came) == 1
        assert await resent(nodes["a"]) == {cause: 1}


async def test_a_peer_that_takes_no_connection_leaves_the_rotation_at_once(llm: StandIn) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with fleet(a=(), b=(llm.as_model(),)) as nodes:
            nodes.mates["node-a"].raw = [raw_peer(taken.getsockname()[1], model("llm"))]
            nodes.load("b", in_flight=5)
            served_at_b(await nodes["a"].chat(ASK))
            (lost,) = nodes.mates["node-a"].lost.values()
            assert "cannot connect" in lost
            again = await nodes["a"].chat(ASK)
            assert (again.status, "x-retried" in again.headers) == (200, False)
            assert await resent(nodes["a"]) == {"unreachable": 1}
            assert nodes.under_way == 0


@pytest.mark.parametrize("stage", SHOWN)
async def test_what_may_have_begun_is_the_answer(llm: StandIn, stage: str) -> None:
    said, status = SHOWN[stage]
    async with beside(saying(said), a=(), b=(llm.as_model(),)) as (nodes, came):
        answer = await nodes["a"].chat(ASK)
        assert (answer.status, answer.body, len(came)) == (status, b"{}", 1)
        assert answer.headers["x-served-by"] == "node-z/llm"
        assert await resent(nodes["a"]) == {}


@pytest.mark.parametrize("stage", BROKEN)
async def test_nothing_is_sent_again_once_a_byte_came(llm: StandIn, stage: str) -> None:
    async with beside(BROKEN[stage], a=(), b=(llm.as_model(),)) as (nodes, came):
        answer = await nodes["a"].chat(ASK)
        assert (answer.status, answer.error["code"], len(came)) == (502, "peer_lost", 1)
        assert await resent(nodes["a"]) == {}
        assert nodes.mates["node-a"].lost


async def test_what_was_not_sent_again_is_not_said_to_be(stand_in: StartStandIn) -> None:
    """The other replica is this node's own, and more wait for it than may."""
    busy = stand_in("--hang")
    refusing = saying(whole("503 Busy", NOT_STARTED))
    own = busy.as_model(max_in_flight=1)
    async with beside(refusing, a=(own,), settings={"queue_length": 0}) as (nodes, came):
        pinned = {"X-Target-Server": "node-a"}
        holding = asyncio.create_task(nodes["a"].chat(ASK, headers=pinned))
        await busy.until_running(1)
        answer = await nodes["a"].chat(ASK)
        assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
        assert len(came) == 1
        assert "x-retried" not in answer.headers
        assert await resent(nodes["a"]) == {}
        holding.cancel()
        await asyncio.wait((holding,))


@pytest.mark.parametrize("status", ["503 Busy", "429 Busy", "404 No", "502 Bad Gateway"])
async def test_no_engine_says_what_agents_say_to_each_other(llm: StandIn, status: str) -> None:
    """It would be taken for a refusal of its agent, and the request be sent again."""
    forged = whole(status, "Connection: close", NOT_STARTED, UNANSWERED, body=b'{"mine": 1}')
    async with (
        engine_saying(forged) as (told, _),
        fleet(a=(), b=(told,), c=(llm.as_model(),)) as nodes,
    ):
        nodes.load("c", in_flight=5)
        for agent in (nodes["a"], nodes["b"]):
            answer = await agent.chat(ASK)
            assert (answer.status, answer.body) == (int(status[:3]), b'{"mine": 1}')
            assert answer.headers["x-served-by"] == "node-b/llm"
            assert not {"x-xgen-not-started", "x-xgen-unanswered"} & answer.headers.keys()
            assert await resent(agent) == {}


async def test_a_peer_that_is_lost_in_its_answer_leaves_it_cut(llm: StandIn) -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    cut = saying(head + b"9\r\ndata: 1\n\n\r\n", then_reset=True)
    async with beside(cut, a=(), b=(llm.as_model(),)) as (nodes, came):
        reader, _ = await nodes["a"].send_raw({**ASK, "stream": True})
        said = await reader.read()
        assert said.count(b'data: {"error"') == 1
        assert (b'"code":"peer_lost"' in said, b"node node-z" in said) == (True, True)
        assert not said.endswith(b"0\r\n\r\n")
        assert len(came) == 1


async def test_one_that_says_itself_that_it_failed_is_not_said_twice(
    stand_in: StartStandIn,
) -> None:
    dying = stand_in("--reset-mid-stream")
    async with fleet(a=(), b=(dying.as_model(),)) as nodes:
        reader, _ = await nodes["a"].send_raw({**ASK, "stream": True})
        said = await reader.read()
        assert said.count(b'data: {"error"') == 1
        assert b'"code":"backend_lost"' in said
        assert not said.endswith(b"0\r\n\r\n")


async def test_where_nobody_else_has_the_model_the_refusal_is_passed_on() -> None:
    said = whole("503 Busy", NOT_STARTED, "Retry-After: 7", body=b'{"mine": 1}')
    async with beside(saying(said), a=()) as (nodes, came):
        answer = await nodes["a"].chat(ASK)
        assert (answer.status, answer.body, len(came)) == (503, b'{"mine": 1}', 1)
        assert answer.headers["retry-after"] == "7"
        assert answer.headers["x-xgen-not-started"] == "1"
        assert "x-retried" not in answer.headers


async def test_an_engine_that_dies_at_another_node_is_no_answer_either(
    llm: StandIn, stand_in: StartStandIn
) -> None:
    """As it is on this node: nothing of an answer came, so another replica is asked."""
    dead = stand_in("--reset-before-first-byte")
    async with fleet(a=(), b=(dead.as_model(),), c=(llm.as_model(),)) as nodes:
        nodes.load("c", in_flight=5)
        answer = await nodes["a"].chat(ASK)
        assert (answer.status, answer.headers["x-served-by"]) == (200, "node-c/llm")
        assert answer.headers["x-retried"] == "1"
        assert await resent(nodes["a"]) == {"lost": 1}


async def test_the_answer_is_that_of_the_second_try_whatever_it_is(stand_in: StartStandIn) -> None:
    dead = stand_in("--reset-before-first-byte")
    refusing = saying(whole("503 Busy", NOT_STARTED))
    async with beside(refusing, a=(), b=(dead.as_model(),)) as (nodes, _):
        answer = await nodes["a"].chat(ASK)
        assert (answer.status, answer.error["code"]) == (502, "backend_lost")
        assert answer.headers["x-served-by"] == "node-b/llm"
        assert answer.headers["x-retried"] == "1"


async def test_two_that_fail_are_enough(llm: StandIn) -> None:
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))
        async with fleet(a=(), b=(llm.as_model(),)) as nodes:
            nodes.load("b", in_flight=50)
            nodes.mates["node-a"].raw = [
                raw_peer(taken.getsockname()[1], model("llm"), node=f"node-{taken.fileno()}")
                for taken in (one, other)
            ]
            answer = await nodes["a"].chat(ASK)
            assert (answer.status, answer.error["code"]) == (503, "peer_unreachable")
            assert answer.headers["x-retried"] == "1"
            assert answer.headers["x-xgen-not-started"] == "1"
            assert (await llm.state())["seen"] == (await llm.state())["served"]


@pytest.mark.parametrize("size", [10, 300_000, 3 << 20])
async def test_the_whole_body_is_there_for_the_second_try(llm: StandIn, size: int) -> None:
    refusing = saying(whole("429 Busy", NOT_STARTED))
    body = b'{"model": "cheap", "x": "%s"}' % (b"x" * size)
    async with beside(refusing, a=(), b=(llm.as_model(aliases=("cheap",)),)) as (nodes, _):
        nodes.mates["node-a"].raw = [
            raw_peer(each.address.port, model("llm", aliases=("cheap",)))
            for each in nodes.mates["node-a"].raw
        ]
        served_at_b(await nodes["a"].chat(body))
    assert await llm.last_body() == body.replace(b"cheap", b"llm", 1)


async def test_a_form_on_disk_is_read_again(stand_in: StartStandIn) -> None:
    refusing = saying(whole("503 Busy", NOT_STARTED))
    backend = stand_in()
    sent = form(part("file", b"\0" * 600_000, filename="a.wav"), part("model", b"llm"))
    async with beside(refusing, a=(), b=(backend.as_model(),)) as (nodes, _):
        path = "/v1/audio/transcriptions"
        served_at_b(await nodes["a"].chat(sent, path, headers=CONTENT_TYPE))
    assert await backend.last_body() == sent


@pytest.mark.parametrize("flag", ["--reset-before-first-byte", None])
async def test_a_backend_that_fails_before_a_byte_is_replaced_by_a_peer(
    llm: StandIn, stand_in: StartStandIn, flag: str | None
) -> None:
    own = stand_in(*([flag] if flag else []))
    if flag is None:
        own.kill()
    async with fleet(a=(own.as_model(),), b=(llm.as_model(),)) as nodes:
        nodes.load("b", in_flight=5)
        served_at_b(await nodes["a"].chat(ASK))
        assert await resent(nodes["a"]) == {"lost" if flag else "unreachable": 1}
        assert nodes.under_way == 0


async def test_a_connection_that_the_peer_has_closed_meanwhile_costs_nothing() -> None:
    """linkerd2#5209: stale connections after a rollout (scenario 74)."""

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(whole("200 OK"))
        await read_request(reader)
        reset(writer)

    async with beside(answer_once, a=()) as (nodes, came):
        for connections in (1, 2, 3):
            answer = await nodes["a"].chat(ASK)
            assert (answer.status, len(came)) == (200, connections)
            assert "x-retried" not in answer.headers
        assert not nodes.mates["node-a"].lost


async def test_a_client_that_leaves_ends_the_work_at_the_peer(stand_in: StartStandIn) -> None:
    hangs = stand_in("--hang")
    async with fleet(a=(), b=(hangs.as_model(),)) as nodes:
        _, writer = await nodes["a"].send_raw(ASK)
        await hangs.until_running(1)
        assert nodes.under_way == 2
        writer.close()
        await hangs.until(lambda state: state["running"] == 0 and state["cancelled"] == 1)
        await until(lambda: nodes.under_way == 0)


async def test_a_peer_without_a_word_holds_only_who_waits_for_it() -> None:
    """dynamo#13088: a request hung for ever after its worker had left (scenario 48)."""
    silent = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await silent.wait()

    async with beside(hang, a=()) as (nodes, came):
        reader, _ = await nodes["a"].send_raw(ASK)
        await until(lambda: came)
        silent.set()
        assert b"502" in await reader.readline()
