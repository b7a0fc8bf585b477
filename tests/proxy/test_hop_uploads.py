"""Bodies that stream through a hop: nothing is held, and each side's pace is the other's."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from reconciler.proxy.connection import Connection
from tests.proxy import wire
from tests.proxy.pair import Answer, beside, pair
from tests.proxy.stand_in import StandIn
from tests.proxy.wire import Leave

TO_B = {"X-Target-Server": "node-b"}
PATH = "/v1/audio/transcriptions"
HEAD = b"POST /v1/audio/transcriptions?server=node-b HTTP/1.1\r\nHost: a\r\n"
OK = b"HTTP/1.1 200 OK\r\nX-Served-By: node-b\r\nContent-Length: 2\r\n\r\nok"
TOO_LARGE = b"HTTP/1.1 413 X\r\nX-Served-By: node-b\r\nContent-Length: 3\r\n\r\nbig"
MIB = 1 << 20


def rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def zeros(count: int) -> AsyncIterator[bytes]:
    piece = bytes(MIB)
    for _ in range(count):
        yield piece


def counting(at_end: Callable[[int], None]) -> Answer:
    """Takes a body of a given length, however large, and keeps none of it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        got = 0
        while got < length:
            got += len(await reader.read(MIB))
        at_end(got)
        writer.write(OK)
        await writer.drain()

    return answer


async def test_a_large_upload_takes_no_memory() -> None:
    count, taken = 256, list[int]()
    async with beside(counting(taken.append)) as (agent, _):
        headers = {**TO_B, "Content-Length": str(MIB)}
        async with agent.session.post(agent.url(PATH), data=zeros(1), headers=headers):
            before = rss_bytes()
        headers["Content-Length"] = str(count * MIB)
        async with agent.session.post(agent.url(PATH), data=zeros(count), headers=headers) as got:
            assert (got.status, await got.read()) == (200, b"ok")
        assert taken == [MIB, count * MIB]
        assert rss_bytes() - before < 32 * MIB


async def test_a_large_answer_takes_no_memory_while_its_client_pauses() -> None:
    count = 256

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nX-Served-By: b\r\nContent-Length: %d\r\n\r\n" % (count * MIB)
        )
        for _ in range(count):
            writer.write(bytes(MIB))
            await writer.drain()

    async with beside(answer) as (agent, _):
        before, got = rss_bytes(), 0
        async with agent.session.get(agent.url("/v1/models"), headers=TO_B) as response:
            async for piece in response.content.iter_any():
                got += len(piece)
                assert rss_bytes() - before < 32 * MIB
        assert got == count * MIB


async def test_a_peer_that_takes_nothing_stops_its_client() -> None:
    """What is on the way is what sockets hold, and no more."""
    go_on = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        await go_on.wait()
        transport.resume_reading()
        await counting(lambda _: None)(reader, writer)

    async with beside(answer) as (agent, _):
        reader, writer = await agent.connect()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (64 * MIB))
        sent = 0
        while sent < 64:
            writer.write(bytes(MIB))
            sent += 1
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                break
        assert sent < 32
        go_on.set()
        for _ in range(64 - sent):
            writer.write(bytes(MIB))
            await writer.drain()
        assert (await wire.read_answer(reader)).body == b"ok"


@pytest.mark.parametrize(
    "length", [b"Content-Length: 8\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"]
)
async def test_a_body_gets_there_piece_by_piece(length: bytes) -> None:
    """A piece is there before the client has made up the next one."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    heads = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        for _ in range(2):
            part = await reader.readuntil(b"!")
            arrived.put_nowait(part)
        if b"chunked" in heads[0]:
            await reader.readuntil(b"0\r\n\r\n")
        writer.write(OK)

    async with beside(answer) as (agent, _):
        reader, writer = await agent.connect()
        writer.write(HEAD + length)
        for _ in range(2):
            writer.write(b"4\r\none!\r\n" if b"chunked" in length else b"one!")
            assert b"one!" in await arrived.get()
        if b"chunked" in length:
            writer.write(b"0\r\n\r\n")
        assert (await wire.read_answer(reader)).body == b"ok"
    lines = heads[0].lower().split(b"\r\n")
    assert [line for line in lines if line.startswith((b"content-length", b"transfer-"))] == [
        length.lower().split(b"\r\n")[0]
    ]


async def test_an_answer_reaches_a_client_that_still_sends() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(MIB)
        writer.write(TOO_LARGE)
        await writer.drain()
        await reader.read()

    async with beside(refuse) as (agent, known):
        reader, writer = await agent.connect()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 30))
        sending = asyncio.create_task(_send_on(writer))
        got = await wire.read_answer(reader)
        assert (got.status, got.body, got.headers["connection"]) == (413, b"big", "close")
        sending.cancel()
        assert not known.lost


async def _send_on(writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            writer.write(bytes(MIB))
            await writer.drain()
    except ConnectionError:
        return


async def test_the_targets_own_limit_is_told_before_anything_is_sent(llm: StandIn) -> None:
    async with pair(llm.as_model(), body_bytes=1000) as nodes:
        reader, writer = await nodes.a.connect()
        head = HEAD.replace(PATH.encode(), b"/v1/chat/completions")
        writer.write(head + b"Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n")
        got = await wire.read_answer(reader)
        assert (got.status, got.error["code"]) == (413, "body_too_large")
        assert got.headers["x-served-by"] == "node-b"


async def test_a_peer_that_says_no_word_gets_the_body_all_the_same() -> None:
    async with beside(counting(lambda _: None)) as (agent, _):
        reader, writer = await agent.connect()
        writer.write(HEAD + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await wire.read_answer(reader)).body == b"ok"


async def test_a_client_that_waits_for_the_word_gets_the_targets(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        reader, writer = await nodes.a.connect()
        head = HEAD.replace(PATH.encode(), b"/v1/chat/completions")
        writer.write(head + b"Content-Length: 15\r\nExpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b'{"model":"llm"}')
        assert (await wire.read_answer(reader)).status == 200
        assert await llm.last_body() == b'{"model":"llm"}'


@pytest.mark.parametrize("leave", [wire.close, wire.half_close, wire.reset])
@pytest.mark.parametrize(
    "length", [b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"]
)
async def test_who_leaves_in_the_middle_of_an_upload_ends_it_there(
    leave: Leave, length: bytes
) -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"one!")
        arrived.put_nowait(b"begun")
        try:
            arrived.put_nowait(await reader.read())
        except ConnectionError:
            arrived.put_nowait(b"")

    async with beside(answer) as (agent, known):
        _, writer = await agent.connect()
        writer.write(HEAD + length + (b"4\r\none!\r\n" if b"chunked" in length else b"one!"))
        assert await arrived.get() == b"begun"
        leave(writer)
        assert not (await arrived.get()).endswith(b"0\r\n\r\n")
        assert not known.lost


async def test_what_cannot_be_read_of_an_upload_is_the_clients_fault() -> None:
    begun = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"one!")
        begun.set()
        await reader.read()

    async with beside(answer) as (agent, known):
        reader, writer = await agent.connect()
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\none!\r\n")
        await begun.wait()
        writer.write(b"zzz\r\n")
        got = await wire.read_answer(reader)
        assert (got.status, got.error["code"]) == (400, "invalid_request")
        assert not known.lost


async def test_a_peer_that_dies_under_an_upload_is_told() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(MIB)
        wire.reset(writer)

    async with beside(answer) as (agent, known):
        reader, writer = await agent.connect()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 30))
        sending = asyncio.create_task(_send_on(writer))
        got = await wire.read_answer(reader)
        assert (got.status, got.error["code"]) == (502, "peer_lost")
        assert "x-xgen-not-started" not in got.headers
        sending.cancel()
        assert len(known.lost) == 1


@pytest.mark.parametrize("leave", [wire.close, wire.half_close, wire.reset])
async def test_who_leaves_while_the_peer_takes_nothing_ends_it_there(leave: Leave) -> None:
    """Its end waits behind what nobody reads."""
    go_on, ended = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        await go_on.wait()
        transport.resume_reading()
        with suppress(ConnectionError):
            while await reader.read(MIB):
                pass
        ended.set()

    async with beside(answer) as (agent, known):
        _, writer = await agent.connect()
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 30))
        await _until_stuck(writer)
        writer.write(bytes(1000))
        await writer.drain()
        [request] = [task for task in asyncio.all_tasks() if task.get_name() == "request"]
        leave(writer)
        await asyncio.wait((request,))
        go_on.set()
        await ended.wait()
        assert not known.lost


async def _until_stuck(writer: asyncio.StreamWriter) -> None:
    """Until the agent reads no more from the client, for good."""
    await writer.drain()
    while not (reading := [each for each in _connections() if each.flow.read_paused]):
        writer.write(bytes(MIB))
        await asyncio.sleep(0.01)
    still = 0
    while still < 20:
        paused = reading[0].flow.read_paused
        still = still + 1 if paused else 0
        if not paused:
            writer.write(bytes(10_000))
        await asyncio.sleep(0.005)


def _connections() -> Iterator[Connection]:
    yield from (each for each in gc.get_objects() if isinstance(each, Connection))
