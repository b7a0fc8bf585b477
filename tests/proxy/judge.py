"""What the server says, read by h11 as a client: legal HTTP, one answer a request, no more."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import h11

from tests.proxy.agent import Agent

LAST = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
"""Behind other requests: its answer says that they ended where they should, and is the last."""
_MOST_PIECES = 2000


@dataclass(frozen=True)
class Judged:
    """One answer. `continues`: how often the client was told to go on before it."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    continues: int


def ways_to_cut(data: bytes) -> dict[str, list[bytes]]:
    """In pieces, by name: whole, within and behind each end of a line, byte by byte."""
    size = max(1, len(data) // _MOST_PIECES)
    return {
        "whole": [data],
        "in its lines' ends": re.split(rb"(?<=\r)(?=\n)|(?<=\n)", data)[:_MOST_PIECES],
        "bytes": [data[at : at + size] for at in range(0, len(data), size)],
    }


async def converse(agent: Agent, pieces: Iterable[bytes], methods: Sequence[str]) -> list[Judged]:
    """Say the pieces, one after the other, and judge all that comes until the connection ends."""
    reader, writer = await agent.connect()
    with suppress(ConnectionError):  # closed already; what was said before is in the reader
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
    said = await reader.read()
    writer.close()
    return judged(said, methods)


def judged(said: bytes, methods: Sequence[str]) -> list[Judged]:
    """The answers to requests with these methods. Raises h11's RemoteProtocolError.

    Fewer than the methods, where one says that it is the last. The last one has to say so.
    """
    connection = h11.Connection(h11.CLIENT)
    connection.receive_data(said)
    connection.receive_data(b"")
    answers: list[Judged] = []
    for method in methods:
        connection.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
        connection.send(h11.EndOfMessage())
        answers.append(_answer(connection))
        if connection.their_state is not h11.DONE:
            break
        connection.start_next_cycle()
    assert connection.their_state is h11.MUST_CLOSE, "the end was not announced"
    assert connection.trailing_data == (b"", True)
    return answers


def _answer(connection: h11.Connection) -> Judged:
    continues, body = 0, bytearray()
    head: h11.Response | None = None
    while True:
        match connection.next_event():
            case h11.InformationalResponse(status_code=status):
                assert status == 100
                continues += 1
            case h11.Response() as head:
                pass
            case h11.Data() as data:
                body += data.data
            case h11.EndOfMessage() if head is not None:
                headers = dict(head.headers)
                assert len(headers) == len(list(head.headers)), "a header stands twice"
                return Judged(head.status_code, headers, bytes(body), continues)
            case other:
                raise AssertionError(other)
