"""An engine that says exactly what a test wants, HTTP or not."""

import asyncio
from asyncio import Event
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reconciler.status import ModelStatus
from tests.proxy.builders import model


@asynccontextmanager
async def saying(first: bytes, then: bytes = b"") -> AsyncIterator[tuple[ModelStatus, Event]]:
    """It says `first` to every request, `then` at the event, and keeps silent."""
    go_on = Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(first)
        await go_on.wait()
        writer.write(then)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield model(port=server.sockets[0].getsockname()[1]), go_on
        go_on.set()
