"""Peers that fail while they have a request: what its client is told, and never a clean end."""

import asyncio
import socket
import struct
from dataclasses import replace

import aiohttp
import pytest

from reconciler.proxy.peers.peer import Peers
from reconciler.proxy.peers.silence import Silence
from tests.proxy.agent import CHAT, Agent
from tests.proxy.pair import Answer, beside

TO_B = {"X-Target-Server": "node-b"}
HEAD = b"HTTP/1.1 200 OK\r\nX-Served-By: node-b\r\n"
SSE = HEAD + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = b"data: 1\n\n"
READ_PATH = "/api/cluster/_self"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def saying(*pieces: bytes, by_reset: bool = False) -> Answer:
    """Reads a head, says these, and ends."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if by_reset:
            reset(writer)

    return answer


BEFORE = {
    "a clean end": (),
    "half a head": (HEAD + b"Content-Le",),
    "not HTTP": (b"220 mail.example ESMTP\r\n\r\n",),
    "zeros": (b"\0" * 1000,),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",),
    "an impossible status": (b"HTTP/1.1 999 X\r\nX-Served-By: b\r\nContent-Length: 0\r\n\r\n",),
    "two lengths": (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",),
    "length and chunks": (HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",),
    "an endless head": (HEAD + b"A: " + b"x" * 200_000,),
    "no agent": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",),
    "no end": (HEAD + b"\r\nhi",),
}


@pytest.mark.parametrize("by_reset", [False, True])
@pytest.mark.parametrize("name", BEFORE)
async def test_what_is_no_answer_is_502_and_may_have_begun(name: str, by_reset: bool) -> None:
    async with beside(saying(*BEFORE[name], by_reset=by_reset)) as (agent, known):
        for path in (CHAT, READ_PATH):
            got = await agent.request("POST", path, body=b"{}", headers=TO_B)
            assert (got.status, got.error["code"]) == (502, "peer_lost"), got.body
            assert "node-b at 127.0.0.1:" in got.error["message"]
            assert "x-xgen-not-started" not in got.headers
            assert got.headers["x-served-by"] == "node-a"
        assert len(known.lost) == 2
        assert counted(agent, "peer_lost") == 2
        assert (await agent.get("/healthz")).status == 200


def counted(agent: Agent, kind: str) -> float | None:
    return agent.metrics.registry.get_sample_value("xgen_upstream_errors_total", {"kind": kind})


MIDWAY = {
    "short of its length": (HEAD + b"Content-Length: 10\r\n\r\nhalf",),
    "half a chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"a\r\nhalf"),
    "no last chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"half"),),
    "no chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"half"), b"zzz\r\n\r\n"),
}


async def heard(agent: Agent, path: str) -> tuple[int, bytes, bool]:
    """The status, what came of the answer, and whether it looks whole."""
    got = b""
    async with agent.session.post(agent.url(path), data=b"{}", headers=TO_B) as response:
        try:
            async for piece in response.content.iter_any():
                got += piece
        except aiohttp.ClientPayloadError:
            return response.status, got, False
        return response.status, got, True


@pytest.mark.parametrize("by_reset", [False, True])
@pytest.mark.parametrize("name", MIDWAY)
async def test_an_answer_that_is_cut_looks_cut(name: str, by_reset: bool) -> None:
    """Or has not begun, where its head came together with what is wrong."""
    async with beside(saying(*MIDWAY[name], by_reset=by_reset)) as (agent, _):
        for path in (CHAT, READ_PATH):
            status, _, whole = await heard(agent, path)
            assert (status, whole) in ((200, False), (502, True))
        assert (await agent.get("/healthz")).status == 200


@pytest.mark.parametrize("begun", [FIRST, b"data: par"])
@pytest.mark.parametrize(
    ("path", "event"),
    [
        (CHAT, b'data: {"error":{'),
        ("/v1/messages", b"event: error\ndata: {"),
        ("/api/management/events", None),
    ],
)
async def test_a_stream_of_an_engine_ends_with_its_error(
    path: str, event: bytes | None, begun: bytes
) -> None:
    async with beside(saying(SSE + chunk(begun))) as (agent, _):
        status, got, whole = await heard(agent, path)
    assert (status, whole) == (200, False)
    rest = got.removeprefix(begun)
    if event is None:
        assert rest == b""
    else:
        assert rest.removeprefix(b"\n\n").startswith(event)
        assert rest.startswith(b"\n\n") == (begun != FIRST)
        assert b"node-b" in rest
        assert rest.endswith(b"\n\n")


@pytest.mark.parametrize("path", [CHAT, READ_PATH])
async def test_what_comes_before_the_answer_is_passed_over(path: str) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3
    async with beside(saying(early + HEAD + b"Content-Length: 2\r\n\r\nok")) as (agent, known):
        got = await agent.request("POST", path, body=b"{}", headers=TO_B)
        assert (got.status, got.body) == (200, b"ok")
        assert not known.lost


async def test_an_answer_that_is_cut_is_cut_for_old_clients_too() -> None:
    """Where the end of the connection is that of the answer, it is a reset."""
    async with beside(saying(*MIDWAY["no last chunk"])) as (agent, _):
        reader, writer = await agent.connect()
        writer.write(b"GET /api/cluster/_self?server=node-b HTTP/1.0\r\n\r\n")
        assert b"half" in await reader.readuntil(b"half")
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_an_agent_near_its_end_passes_no_inference_on() -> None:
    async with beside(saying(HEAD + b"Content-Length: 2\r\n\r\nok")) as (agent, _):
        agent.board.put(replace(agent.board.now, draining=True, closed=True))
        got = await agent.chat({"model": "llm"}, headers=TO_B)
        assert (got.status, got.error["code"]) == (503, "node_draining")
        assert (got.headers["x-xgen-not-started"], got.headers["connection"]) == ("1", "close")
        assert (await agent.get(READ_PATH, headers=TO_B)).body == b"ok"


async def test_one_that_hangs_is_not_said_to_have_ended_the_connection() -> None:
    """But to have not answered, since when it is not reached, and why."""
    arrived = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()

    async with beside(hang) as (agent, known), asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(agent.get(READ_PATH, headers=TO_B))
        await arrived.wait()
        (frozen,) = known.peers.all
        lost = replace(
            frozen,
            reachable=False,
            because="has not answered within 6 s",
            since="2026-12-01T12:00:00Z",
        )
        known.peers = Peers(all=(lost,))
        soon = {"unreached_seconds": 0.01, "quiet_seconds": 0.01, "look_seconds": 0.01}
        looking = tasks.create_task(Silence(known, agent.upstream.give_up, **soon).run())
        got = await asking
        looking.cancel()
        assert (got.status, got.error["code"]) == (502, "peer_lost")
        assert got.error["message"] == (
            f"cannot get an answer from node node-b at {frozen.address}: it has not answered for "
            "18 s; the cluster's view has it as not reachable since 2026-12-01T12:00:00Z: has not "
            "answered within 6 s"
        )
        assert known.lost == []


async def test_a_hung_peer_is_left_when_its_client_leaves() -> None:
    arrived, left = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        left.set()

    async with beside(hang) as (agent, known):
        for method in (b"GET", b"DELETE", b"HEAD"):
            arrived.clear()
            left.clear()
            _, writer = await agent.connect()
            writer.write(method + b" /v1/models?server=node-b HTTP/1.1\r\nHost: a\r\n\r\n")
            await arrived.wait()
            writer.close()
            await left.wait()
        assert not known.lost
