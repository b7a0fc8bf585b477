"""What a backend gets of a request, by either way that it is written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from reconciler.proxy.outgoing import Attempt, Connector, request

_GIVEN = [("x-a", "1"), ("accept-encoding", "identity"), ("x-a", "2")]
_SMALL, _LARGE = b"{}", b"x" * 100_000
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def _engine(heard: list[bytes]) -> AsyncIterator[URL]:
    """Answers each request and keeps what it was: its head, then its body."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                heard.extend((head, await reader.readexactly(length)))
                writer.write(_ANSWER)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield URL(f"http://127.0.0.1:{port}/v1/x?q=%41", encoded=True)


@pytest.mark.parametrize("body", [_SMALL, _LARGE])
async def test_no_header_is_added_and_the_path_stays_as_it_is(body: bytes) -> None:
    heard: list[bytes] = []
    connector = Connector(keepalive_seconds=3.0)
    async with _engine(heard) as url:
        answer = await request(connector, "POST", url, _GIVEN, body, Attempt())
        assert (answer.status, await answer.read()) == (200, b"ok")
        await connector.close()
    first, *fields = heard[0].decode().rstrip().split("\r\n")
    assert first == "POST /v1/x?q=%41 HTTP/1.1"
    assert fields[0].startswith("Host: 127.0.0.1:")
    assert fields[1:4] == [f"{name}: {value}" for name, value in _GIVEN]
    assert fields[4:] == [f"Content-Length: {len(body)}"]
    assert heard[1] == body


@pytest.mark.parametrize("body", [_SMALL, _LARGE])
async def test_a_connection_that_is_not_kept_says_so(body: bytes) -> None:
    heard: list[bytes] = []
    connector = Connector()
    async with _engine(heard) as url:
        answer = await request(connector, "POST", url, _GIVEN, body, Attempt())
        await answer.read()
        await connector.close()
    assert b"\r\nConnection: close\r\n" in heard[0]


@pytest.mark.parametrize("body", [_SMALL, _LARGE])
async def test_an_attempt_knows_whether_its_connection_is_new(body: bytes) -> None:
    heard: list[bytes] = []
    connector = Connector(keepalive_seconds=3.0)
    async with _engine(heard) as url:
        attempts = [Attempt(), Attempt()]
        for attempt in attempts:
            answer = await request(connector, "POST", url, _GIVEN, body, attempt)
            await answer.read()
        await connector.close()
    assert [attempt.new_connection for attempt in attempts] == [True, False]
    assert all(attempt.under_way for attempt in attempts)


async def test_nothing_is_under_way_without_a_connection() -> None:
    connector, attempt = Connector(keepalive_seconds=3.0), Attempt()
    with pytest.raises(aiohttp.ClientConnectorError):
        await request(connector, "POST", URL("http://127.0.0.1:1/"), _GIVEN, _SMALL, attempt)
    await connector.close()
    assert attempt.new_connection
    assert not attempt.under_way


@pytest.mark.parametrize("body", [_SMALL, _LARGE])
async def test_who_stops_waiting_closes_the_connection(body: bytes) -> None:
    closed = asyncio.Event()
    arrived = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        closed.set()
        writer.close()

    connector = Connector(keepalive_seconds=3.0)
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = URL(f"http://127.0.0.1:{port}/")
        waiting = asyncio.create_task(request(connector, "POST", url, _GIVEN, body, Attempt()))
        await arrived.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(20):
            await closed.wait()
        await connector.close()


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "OPTIONS"])
async def test_any_method_goes_out_with_nothing_behind_its_head(method: str) -> None:
    heard: list[bytes] = []
    connector = Connector()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(_ANSWER.removesuffix(b"ok") if method == "HEAD" else _ANSWER)
        heard.append(await reader.read())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x", encoded=True)
        response = await request(connector, method, url, _GIVEN, None, Attempt())
        assert response.headers["content-length"] == "2"
        assert await response.read() == (b"" if method == "HEAD" else b"ok")
        await connector.close()
    assert heard[0].startswith(f"{method} /x HTTP/1.1\r\n".encode())


async def test_a_body_waits_until_the_other_side_wants_it() -> None:
    asked, connector = asyncio.Event(), Connector()
    given = [*_GIVEN, ("expect", "100-continue"), ("content-length", "2")]

    async def body() -> AsyncIterator[bytes]:
        assert asked.is_set()
        yield b"{}"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(2) == b"{}"
        writer.write(_ANSWER)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        response = await request(connector, "POST", url, given, body(), Attempt())
        assert await response.read() == b"ok"
        await connector.close()
