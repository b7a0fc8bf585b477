"""HTTP by hand: requests and answers as bytes, for what no HTTP library would send."""

import asyncio
import socket
import struct
from collections.abc import Callable

from tests.proxy.agent import CHAT, Agent, Answer
from tests.proxy.stand_in import StandIn

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


def chat(body: bytes, *, length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    return f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode() + body


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """The next answer on a connection; its end is where its length, or the connection, says."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    length = headers.get("content-length")
    body = await (reader.read() if length is None else reader.readexactly(int(length)))
    return Answer(int(first.split()[1]), headers, body)


async def until_gone(writer: asyncio.StreamWriter) -> None:
    """Until the other side has let go of the connection, not only of its own half."""
    try:
        while not writer.transport.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)
    except ConnectionError:
        return


Leave = Callable[[asyncio.StreamWriter], None]


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def half_close(writer: asyncio.StreamWriter) -> None:
    """As Go's server and nginx do, we take the end of the input for the end of the client."""
    writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def until_forgotten(agent: Agent, backend: StandIn) -> None:
    """The backend has given up exactly one request, and nobody counts or holds it."""
    state = await backend.until(lambda s: s["running"] == 0 and s["cancelled"] == 1)
    assert state["served"] == 0
    endpoint = agent.board.now.models[0].endpoint
    assert endpoint is not None
    await agent.traffic.wait_idle(endpoint.nonce)
    assert agent.traffic.total == 0
    await backend.until(lambda s: s["connections"] == 1)  # the one that asks
