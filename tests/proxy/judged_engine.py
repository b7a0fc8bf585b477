"""An engine that reads its requests with h11: what is said to it must be plain HTTP/1.1."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11

from reconciler.status import ModelStatus
from tests.proxy.builders import model

Reply = tuple[int, str, bytes]
"""Status, type, body."""
_OK: Reply = (200, "application/json", b'{"ok":true}')


@dataclass(frozen=True)
class Asked:
    """One request that arrived. `framings`: its headers that say where it ends."""

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    @property
    def framings(self) -> list[bytes]:
        ends = (b"content-length", b"transfer-encoding")
        return [name for name, _ in self.headers if name in ends]


@dataclass
class JudgedEngine:
    """`replies` by path; else it is content. `faults`: what h11 refused to read."""

    port: int
    replies: Mapping[str, Reply]
    asked: list[Asked] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def as_model(self, name: str = "llm", **fields: Any) -> ModelStatus:
        return model(name, port=self.port, **fields)


@asynccontextmanager
async def judged_engine(replies: Mapping[str, Reply] | None = None) -> AsyncIterator[JudgedEngine]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _serve(engine, reader, writer)
        except h11.RemoteProtocolError as exc:
            engine.faults.append(str(exc))
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    engine = JudgedEngine(server.sockets[0].getsockname()[1], replies or {})
    async with server:
        yield engine


async def _serve(
    engine: JudgedEngine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    connection = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = bytearray()
    while True:
        match connection.next_event():
            case h11.Request() as head:
                body = bytearray()
            case h11.Data() as data:
                body += data.data
            case h11.EndOfMessage() if head is not None:
                engine.asked.append(_asked(head, bytes(body)))
                writer.write(_answer(connection, engine, head))
                if connection.our_state is h11.MUST_CLOSE:
                    return
                connection.start_next_cycle()
            case h11.ConnectionClosed():
                return
            case _:
                connection.receive_data(await reader.read(65536))


def _asked(head: h11.Request, body: bytes) -> Asked:
    return Asked(head.method.decode(), head.target.decode(), tuple(head.headers), body)


def _answer(connection: h11.Connection, engine: JudgedEngine, head: h11.Request) -> bytes:
    path = head.target.decode().partition("?")[0]
    status, content_type, body = engine.replies.get(path, _OK)
    headers = [("content-type", content_type), ("content-length", str(len(body)))]
    events = (h11.Response(status_code=status, headers=headers), h11.Data(body), h11.EndOfMessage())
    return b"".join(connection.send(event) or b"" for event in events)
