"""Clients of every kind, judged by h11: how they frame, cut and pipeline their requests.

Each case is sent whole, cut in and behind the ends of its lines, and byte by byte.
"""

import pytest

from tests.proxy.agent import CHAT, running_agent
from tests.proxy.judge import LAST, converse, judged, ways_to_cut
from tests.proxy.judged_engine import judged_engine
from tests.proxy.matrix import (
    ASK,
    CHUNKED,
    GET,
    OLD,
    POST,
    STREAM,
    Case,
    asks,
    chunks,
    hold,
    last,
    length,
    refused,
)
from tests.proxy.stand_in import StandIn, StartStandIn
from tests.proxy.wire import HEALTH

_BYTES = [ASK[at : at + 1] for at in range(len(ASK))]
_LOOKS_LIKE_TWO = b'{"model":"llm","x":"' + HEALTH.replace(b"\r\n", b"\\r\\n") + b'"}\r\n\r\n'
FRAMINGS = {
    "length": asks(length(ASK), ASK),
    "length with zeros": asks(POST + b"Content-Length: 0015\r\n\r\n" + ASK, ASK),
    "length among spaces": asks(POST + b"Content-Length: \t15 \t\r\n\r\n" + ASK, ASK),
    "like two requests": asks(length(_LOOKS_LIKE_TWO), _LOOKS_LIKE_TWO),
    "one chunk": asks(chunks(ASK), ASK),
    "chunks of a byte": asks(chunks(*_BYTES), ASK),
    "upper case": asks(chunks(ASK).replace(b"chunked", b"CHUNKED"), ASK),
    "size with zeros": asks(CHUNKED + b"000F\r\n" + ASK + b"\r\n000\r\n\r\n", ASK),
    "extensions": asks(CHUNKED + b'f;a;b=c;d="e f"\r\n' + ASK + b"\r\n0;x\r\n\r\n", ASK),
    "trailers": asks(chunks(ASK, end=b"0\r\nX-Sum: 1\r\nHost: b\r\nUpgrade: h2c\r\n\r\n"), ASK),
    "no body": Case(POST + b"\r\n", [("POST", 400)]),
    "empty body": Case(length(b""), [("POST", 400)]),
    "no chunks": Case(chunks(), [("POST", 400)]),
    "not JSON": Case(length(b"[1]"), [("POST", 400)]),
    "for nobody": Case(length(ASK).replace(b"/v1", b"/v9"), [("POST", 404)], early=True),
    "by GET": Case(length(ASK).replace(b"POST", b"GET"), [("GET", 405)], early=True),
    "compressed": Case(length(ASK, b"Content-Encoding: br"), [("POST", 415)], early=True),
    "compressed behind all": Case(
        length(ASK, b"Content-Encoding: identity", b"Content-Encoding: gzip"),
        [("POST", 415)],
        early=True,
    ),
    "not compressed": asks(length(ASK, b"Content-Encoding: Identity"), ASK),
    "too large": Case(length(b" " * 5000), [("POST", 413)], early=True),
    "too many chunks": Case(chunks(*[b" " * 500] * 10), [("POST", 413)], early=True),
}


async def test_however_a_body_is_framed_it_is_one_request(llm: StandIn) -> None:
    async with running_agent(llm.as_model(), body_bytes=4000) as agent:
        await hold(agent, llm, FRAMINGS)


def _with(line: bytes, *, head: bytes = GET) -> bytes:
    return head + b"Host: a\r\n" + line + b"\r\n\r\n"


_UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: "
HEADS = {
    "empty lines first": Case(b"\r\n\r\n" + HEALTH, [("GET", 200)]),
    "several spaces": Case(HEALTH.replace(b" ", b"   ", 2), [("GET", 200)]),
    "tabs in values": Case(_with(b"X:\ta\tb\t"), [("GET", 200)]),
    "no value": Case(_with(b"X:"), [("GET", 200)]),
    "Latin-1 in a value": Case(_with(b"X: \xe9"), [("GET", 200)]),
    "UTF-8 in a value": Case(_with("X: é".encode()), [("GET", 200)]),
    "HEAD": Case(HEALTH.replace(b"GET", b"HEAD"), [("HEAD", 200)]),
    "HEAD of nothing": Case(HEALTH.replace(b"GET /", b"HEAD /x"), [("HEAD", 404)]),
    "HEAD of POST": Case(POST.replace(b"POST", b"HEAD") + b"\r\n", [("HEAD", 405)]),
    "OPTIONS": Case(POST.replace(b"POST", b"OPTIONS") + b"\r\n", [("OPTIONS", 204)]),
    "OPTIONS of all": Case(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", [("OPTIONS", 404)]),
    "absolute target": Case(HEALTH.replace(b" /", b" http://b:1/"), [("GET", 200)]),
    "target of https": Case(HEALTH.replace(b" /", b" HTTPS://b/"), [("GET", 200)]),
    "websocket": Case(_with(_UPGRADE + b"websocket"), [("GET", 200)]),
    "h2c": asks(length(ASK, _UPGRADE + b"h2c"), ASK),
    "h2c, chunked": asks(chunks(ASK, line=_UPGRADE + b"h2c"), ASK),
    "other method": Case(HEALTH.replace(b"GET", b"PROPFIND"), [("PROPFIND", 405)]),
    "close": last(_with(b"Connection: close"), "GET"),
    "close among others": last(_with(b"Connection: x, Close"), "GET"),
    "1.0": last(length(ASK, head=OLD), "POST", ASK),
    "1.0, stream": last(length(STREAM, head=OLD), "POST", STREAM),
    "1.0 without host": last(b"GET /healthz HTTP/1.0\r\n\r\n", "GET"),
    "1.0 that stays": last(length(ASK, b"Connection: keep-alive", head=OLD), "POST", ASK),
}


async def test_heads_of_every_kind(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        await hold(agent, llm, HEADS)


def _fields(number: int) -> bytes:
    return b"\r\n".join(b"X-%06d: " % each + b"x" * 86 for each in range(number))


def _endless(begun: bytes) -> Case:
    return Case(begun + b"x" * 400_000, [("POST", 431)], open=False, says_bye=True)


SIZES = {
    "one field, under": Case(_with(b"X: " + b"x" * 65_400), [("GET", 200)]),
    "one field, over": refused(_with(b"X: " + b"x" * 65_600), method="GET", status=431),
    "many fields, under": Case(_with(_fields(650)), [("GET", 200)]),
    "many fields, over": refused(_with(_fields(680)), method="GET", status=431),
    "target, under": Case(HEALTH.replace(b"z ", b"z?" + b"x" * 65_400 + b" "), [("GET", 200)]),
    "target, over": refused(
        HEALTH.replace(b"z ", b"z?" + b"x" * 65_600 + b" "), method="GET", status=431
    ),
    "behind another": Case(
        HEALTH + _with(b"X: " + b"x" * 65_600), [("GET", 200), ("GET", 431)], open=False
    ),
    "a name": refused(_with(b"x" * 65_600 + b": 1"), method="GET", status=431),
    "an extension": _endless(CHUNKED + b"1;"),
    "trailers": _endless(chunks(ASK, end=b"0\r\nX: ")),
}


async def test_heads_have_64_kib(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        await hold(agent, llm, SIZES)


_NOT_JSON = length(b"[]")
_MANY = [length(ASK), _NOT_JSON, HEALTH, chunks(ASK), length(STREAM), POST + b"\r\n"]
_THEIRS = [("POST", 200), ("POST", 400), ("GET", 200), ("POST", 200), ("POST", 200), ("POST", 400)]
_BODIES = [ASK, ASK, STREAM]
_CLOSING = HEALTH[:-2] + b"Connection: close\r\n\r\n"
PIPELINES = {
    "two": asks(length(ASK) + chunks(STREAM), ASK, STREAM),
    "six": Case(b"".join(_MANY), _THEIRS, _BODIES),
    "sixteen": Case(
        b"".join(_MANY * 2 + _MANY[:4]), _THEIRS * 2 + _THEIRS[:4], [*_BODIES * 2, ASK, ASK]
    ),
    "no HTTP among them": Case(
        length(ASK) + HEALTH + b"X\r\n" + length(ASK),
        [("POST", 200), ("GET", 200), ("GET", 400)],
        [ASK],
        open=False,
    ),
    "a last one": Case(HEALTH + _CLOSING, [("GET", 200), ("GET", 200)], open=False, says_bye=True),
    "not found among them": Case(
        HEALTH + HEALTH.replace(b"/", b"/x", 1) + HEALTH,
        [("GET", 200), ("GET", 404), ("GET", 200)],
    ),
}


async def test_pipelined_requests_are_answered_each(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        await hold(agent, llm, PIPELINES)


async def test_more_than_are_kept_ahead_get_the_first_answer_only(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        before = (await llm.state())["seen"]
        answers = await converse(agent, [length(ASK) * 18], ["POST"] * 18)
        assert [answer.status for answer in answers] == [200]
        assert (await llm.state())["seen"] == before + 1


_EXPECT = b"Expect: 100-continue"


@pytest.mark.parametrize("sent", [length(ASK, _EXPECT), chunks(ASK, line=_EXPECT)])
async def test_who_waits_is_told_once_to_go_on(llm: StandIn, sent: bytes) -> None:
    head, _, body = sent.partition(b"\r\n\r\n")
    async with running_agent(llm.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(head + b"\r\n\r\n")
        said = await reader.readuntil(b"100 Continue\r\n\r\n")
        writer.write(body + LAST)
        answers = judged(said + await reader.read(), ["POST", "GET"])
        assert [(answer.status, answer.continues) for answer in answers] == [(200, 1), (200, 0)]
        assert await llm.last_body() == ASK


async def test_http_1_0_is_never_told_to_go_on(llm: StandIn) -> None:
    """It does not know that (RFC 9110, section 10.1.1)."""
    async with running_agent(llm.as_model()) as agent:
        sent = length(ASK, _EXPECT, head=OLD)
        for pieces in ways_to_cut(sent).values():
            (answer,) = await converse(agent, pieces, ["POST"])
            assert (answer.status, answer.continues) == (200, 0)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (length(b" " * 5000, _EXPECT), 413),
        (length(ASK, _EXPECT, b"Content-Encoding: gzip"), 415),
        (length(ASK, _EXPECT).replace(b"/v1", b"/v9"), 404),
        (length(ASK, _EXPECT).replace(b"POST", b"PUT"), 405),
        (length(ASK, _EXPECT, b"Host: a"), 400),
    ],
)
async def test_who_waits_is_refused_without_that(llm: StandIn, head: bytes, status: int) -> None:
    async with running_agent(llm.as_model(), body_bytes=4000) as agent:
        answers = await converse(agent, [head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"], ["POST"])
        assert [(answer.status, answer.continues) for answer in answers] == [(status, 0)]


async def test_who_closes_its_half_is_gone(stand_in: StartStandIn) -> None:
    """However it had framed its request: nothing is said any more, and the work has ended."""
    backend = stand_in("--hang")
    ways = [length(ASK), chunks(ASK), length(STREAM, head=OLD), length(ASK) * 3]
    async with running_agent(backend.as_model()) as agent:
        for number, sent in enumerate(ways):
            reader, writer = await agent.connect()
            writer.write(sent)
            await backend.until_running(1)
            writer.write_eof()
            assert await reader.read() == b""
            await backend.until(lambda s: s["running"] == 0)
            state = await backend.state()
            assert (state["seen"], state["cancelled"]) == (number + 1, number + 1)


async def test_headers_of_a_connection_stay_on_it(llm: StandIn) -> None:
    sent = length(
        ASK,
        b"Connection: close, X-Foo",
        b"X-Foo: 1",
        b"Keep-Alive: 5",
        b"TE: trailers",
        b"X-Bar: 1",
    )
    async with running_agent(llm.as_model()) as agent:
        await converse(agent, [sent], ["POST"])
        seen = dict(await llm.last_headers())
        assert seen["x-bar"] == "1"
        assert not {"x-foo", "keep-alive", "te"} & seen.keys()


async def test_http_1_0_never_gets_chunks(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        (answer,) = await converse(agent, [length(STREAM, head=OLD)], ["POST"])
        assert b"transfer-encoding" not in answer.headers
        assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_what_goes_out_has_one_framing() -> None:
    """h11 reads it too, as the engine."""
    cases = [case for case in (FRAMINGS | HEADS | PIPELINES).values() if case.reach]
    async with judged_engine() as engine, running_agent(engine.as_model()) as agent:
        for case in cases:
            await converse(agent, [case.all_bytes], case.methods)
        assert engine.faults == []
        assert [asked.body for asked in engine.asked] == [b for case in cases for b in case.reach]
        assert {tuple(asked.framings) for asked in engine.asked} == {(b"content-length",)}
        assert {(asked.method, asked.target) for asked in engine.asked} == {("POST", CHAT)}
