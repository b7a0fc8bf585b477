"""Peers that misbehave, on real sockets."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from reconciler.plan.peering import Address

Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_peer(behave: Behave, *, port: int = 0) -> AsyncIterator[Address]:
    """Each request to it is treated so; a connection is used once."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await behave(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def answer(body: bytes, *, status: str = "200 OK", **more: str) -> bytes:
    """A whole one. `more`: headers."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def as_json(**fields: object) -> bytes:
    return answer(json.dumps(fields).encode(), content_type="application/json")


def says(data: bytes) -> Behave:
    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return behave


async def hangs(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def resets(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    given: socket.socket = writer.get_extra_info("socket")
    given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def trickles(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The head at once, and of a body that never ends a byte now and then."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def never_ends(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b" " * 65536
    while True:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
