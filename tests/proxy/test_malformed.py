"""Bytes that are no request, and what they are told; old and half-meant HTTP."""

from collections.abc import Sequence

import pytest

from tests.proxy.agent import CHAT, running_agent
from tests.proxy.stand_in import StartStandIn
from tests.proxy.wire import HEALTH, read_answer

_CHUNKED = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
_UPGRADE = b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
_NONSENSE = {
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "method": b"HELO me\r\n\r\n",
    "version": b"GET / HTTP/7.3\r\n\r\n",
    "header": b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    "target": b"GET a:b HTTP/1.1\r\nHost: a\r\n\r\n",
    "target of an offer": b"GET a:b HTTP/1.1\r\nHost: a\r\n" + _UPGRADE,
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two lengths": _CHUNKED[:-2] + b"Content-Length: 3\r\n\r\n",
    "length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "proxying": b"CONNECT a:80 HTTP/1.1\r\n\r\n",
    "chunk": _CHUNKED + b"zz\r\n",
    "later chunk": _CHUNKED + b"2\r\n{}\r\nzz\r\n",
}


@pytest.mark.parametrize("name", _NONSENSE)
async def test_nonsense_is_told_so_as_everything_is(name: str) -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        writer.write(_NONSENSE[name])
        answer = await read_answer(reader)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert answer.error["type"] == "invalid_request_error"
        assert answer.error["message"].startswith("cannot read the request: ")
        assert answer.headers["x-served-by"] == "node-a"
        assert answer.headers["x-request-id"]
        assert answer.headers["connection"] == "close"
        assert await reader.read() == b""


async def test_nonsense_behind_requests_is_told_so_in_its_turn() -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        writer.write(HEALTH + b"nonsense" + HEALTH)
        assert (await read_answer(reader)).status == 200
        assert (await read_answer(reader)).error["code"] == "invalid_request"
        assert await reader.read() == b""


async def test_the_id_of_a_request_that_is_refused_is_kept() -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        writer.write(b"GET / HTTP/1.1\r\nX-Request-Id: mine\r\nX-Other: 1\r\nno colon\r\n\r\n")
        assert (await read_answer(reader)).headers["x-request-id"] == "mine"


@pytest.mark.parametrize("pieces", [1, 20])
async def test_a_head_that_is_too_large_is_431(pieces: int) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 70_000 + b"\r\n\r\n"
    size = -(-len(head) // pieces)
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        for start in range(0, len(head), size):
            writer.write(head[start : start + size])
            await writer.drain()
        answer = await read_answer(reader)
        assert (answer.status, answer.error["code"]) == (431, "head_too_large")
        assert answer.headers["x-served-by"] == "node-a"


async def test_a_head_may_have_almost_64_kib() -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 65_000 + b"\r\n\r\n")
        assert (await read_answer(reader)).status == 200


@pytest.mark.parametrize(
    ("begun", "more"), [(b"", b"\r\n"), (_CHUNKED + b"2\r\n{}\r\n0\r\nX-Long: ", b"x")]
)
async def test_what_never_ends_is_431(begun: bytes, more: bytes) -> None:
    """Empty lines before a request, and the trailer of a body."""
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        writer.write(begun + more * 600_000)
        assert (await read_answer(reader)).error["code"] == "head_too_large"
        assert await reader.read() == b""


async def test_trailers_are_no_headers(stand_in: StartStandIn) -> None:
    backend = stand_in()
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(_CHUNKED + b'f\r\n{"model":"llm"}\r\n0\r\nX-Smuggled: 1\r\n\r\n')
        assert (await read_answer(reader)).status == 200
        assert "x-smuggled" not in dict(await backend.last_headers())


def _old(body: bytes, *lines: str) -> bytes:
    head = (f"POST {CHAT} HTTP/1.0", f"Content-Length: {len(body)}", *lines, "", "")
    return "\r\n".join(head).encode() + body


@pytest.mark.parametrize("lines", [(), ("Connection: keep-alive",)])
async def test_http_1_0_gets_no_chunks(stand_in: StartStandIn, lines: Sequence[str]) -> None:
    """RFC 9112, section 6.1. The end of the answer is the end of the connection."""
    backend = stand_in()
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(_old(b'{"model":"llm","stream":true}', *lines))
        answer = await read_answer(reader)
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.body.startswith(b"data: {")
        assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_http_1_0_sees_that_a_stream_was_cut(stand_in: StartStandIn) -> None:
    """A clean end would be the end of the answer."""
    backend = stand_in("--chunks", "10", "--die-mid-stream", "--chunk-interval", "0.01")
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(_old(b'{"model":"llm","stream":true}'))
        await reader.readuntil(b'"code":"backend_lost"')
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_http_1_0_sees_that_the_agent_ended_first(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "2", "--chunk-interval", "3600")
    async with running_agent(backend.as_model(), grace_seconds=0.1) as agent:
        reader, writer = await agent.connect()
        writer.write(_old(b'{"model":"llm","stream":true}'))
        await reader.readuntil(b"token0")
        agent.stop.set()
        with pytest.raises(ConnectionResetError):
            await reader.read()


_OFFER = (
    b"Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAA\r\nContent-Length: 15\r\n\r\n"
)


@pytest.mark.parametrize("cut", [30, 100, 130, -20, -15, -1])
async def test_an_offer_of_http2_in_two_pieces_is_passed_over(
    stand_in: StartStandIn, cut: int
) -> None:
    backend = stand_in()
    request = f"POST {CHAT} HTTP/1.1\r\n".encode() + _OFFER + b'{"model":"llm"}'
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(HEALTH)
        await read_answer(reader)
        for piece in (request[:cut], request[cut:]):
            writer.write(piece)
            await writer.drain()
            await agent.get("/healthz")
        assert (await read_answer(reader)).status == 200
        assert await backend.last_body() == b'{"model":"llm"}'


async def test_an_offer_of_http2_behind_another_request_is_passed_over(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in()
    request = f"POST {CHAT} HTTP/1.1\r\n".encode() + _OFFER + b'{"model":"llm"}'
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(request + request + HEALTH)
        answers = [await read_answer(reader) for _ in range(3)]
        assert [answer.status for answer in answers] == [200] * 3
        assert answers[2].json == {"status": "ok"}


async def test_an_offer_without_a_body_is_passed_over() -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        for _ in range(2):
            writer.write(HEALTH[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            assert (await read_answer(reader)).json == {"status": "ok"}
