"""What a backend gets of a request, by either way that it is written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from reconciler.proxy.outgoing import Attempt, Connector, post

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
    connector = Connector()
    async with _engine(heard) as url:
        answer = await post(connector, url, _GIVEN, body, Attempt())
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
    connector = Connector(force_close=True)
    async with _engine(heard) as url:
        answer = await post(connector, url, _GIVEN, body, Attempt())
        await answer.read()
        await connector.close()
    assert b"\r\nConnection: close\r\n" in heard[0]


@pytest.mark.parametrize("body", [_SMALL, _LARGE])
async def test_an_attempt_knows_whether_its_connection_is_new(body: bytes) -> None:
    heard: list[bytes] = []
    connector = Connector()
    async with _engine(heard) as url:
        attempts = [Attempt(), Attempt()]
        for attempt in attempts:
            answer = await post(connector, url, _GIVEN, body, attempt)
            await answer.read()
        await connector.close()
    assert [attempt.new_connection for attempt in attempts] == [True, False]
    assert all(attempt.under_way for attempt in attempts)


async def test_nothing_is_under_way_without_a_connection() -> None:
    connector, attempt = Connector(), Attempt()
    with pytest.raises(aiohttp.ClientConnectorError):
        await post(connector, URL("http://127.0.0.1:1/"), _GIVEN, _SMALL, attempt)
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

    connector = Connector()
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = URL(f"http://127.0.0.1:{port}/")
        waiting = asyncio.create_task(post(connector, url, _GIVEN, body, Attempt()))
        await arrived.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(20):
            await closed.wait()
        await connector.close()
