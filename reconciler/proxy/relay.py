"""Passing an engine's answer on, byte for byte, as it comes."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import aiohttp
import msgspec
from starlette.types import Message, Send

from reconciler.errors import Transient
from reconciler.proxy import error_shape, errors, headers, unready
from reconciler.proxy.error_shape import ErrorShape
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.exchange import BODY_FOLLOWS
from reconciler.proxy.heartbeat import Heartbeat

_DATA = b"data: "
_COMMENT = ord(":")
_NEWLINE = ord("\n")
"""The first byte of one in an event stream: engines send some while they do nothing."""
_ERROR_EVENTS = (b'data: {"error"', b"event: error")
_MOST_BYTES = 1 << 20
"""Of what we look into: an engine's error that becomes an event, say; what is longer is none."""


class BackendLostMidway(Transient):
    """The connection ended in the middle of the answer."""


class Progress(Protocol):
    """How far an answer is; see `inflight.Request`."""

    relayed_bytes: int
    is_work: bool


@dataclass(slots=True, kw_only=True)  # not frozen: that costs some microseconds a request
class Client:
    """Whoever asked. `send`: past the heartbeat, for an answer that is here as a whole.
    `on_first_byte`: called when the engine's first one is here. `peer`: the node whose agent
    answers; None: an engine of ours does. `extra`: headers of ours. `last_piece`: of an answer that
    broke off, what came last.
    """

    send: Send
    heartbeat: Heartbeat
    served_by: bytes
    model: str
    errors: ErrorShape
    request: Progress
    request_id: bytes
    on_first_byte: Callable[[], None]
    peer: str | None = None
    extra: Sequence[Header] = ()
    last_piece: bytes = b""

    def error_event(self, problem: Problem) -> bytes:
        return error_shape.event(
            self.errors, error_shape.whole(self.errors, problem, self.request_id)
        )


def stream_head(served_by: bytes, extra: Sequence[Header]) -> Message:
    """Of an event stream that begins before its engine does."""
    given = [(b"content-type", b"text/event-stream")]
    head = [*headers.to_client(given, served_by=served_by), *extra]
    return {"type": "http.response.start", "status": 200, "headers": head}


async def relay(response: aiohttp.ClientResponse, client: Client) -> None:
    """Back-pressure is the client's: `send` waits, so nothing is read ahead.

    Raises BackendLostMidway; the answer is then left incomplete, after an error event where it is
    an event stream, and the caller must not complete it: an answer that was cut must look cut.
    """
    heartbeat, content = client.heartbeat, response.content
    answer_headers = headers.to_client(
        response.raw_headers, served_by=client.served_by, by_agent=client.peer is not None
    )
    answer_headers += client.extra
    begun = await heartbeat.stop_beginning()
    head = {
        "type": "http.response.start",
        "status": response.status,
        "headers": answer_headers,
    }
    if not begun and content.is_eof() and content.exception() is None:
        await _whole(head, content.read_nowait(), client)
        return
    is_stream = headers.is_event_stream(answer_headers)
    if not begun:
        length = headers.first(answer_headers, b"content-length")
        await heartbeat.send_head(head, endless=is_stream and length is None)
    try:
        with ending_with_connection(response):
            if begun and not is_stream:
                await _as_event(response, client)
            else:
                await _as_it_comes(content, client)
    except (aiohttp.ClientError, OSError) as exc:
        if (is_stream or begun) and not _says_an_error(client.last_piece):
            event = client.error_event(_lost_midway(client))
            await heartbeat.send(event if heartbeat.between_events else b"\n\n" + event)
        who = "the backend" if client.peer is None else f"node {client.peer}"
        cause = f"cannot read the answer of {client.model} on from {who}: {exc}"
        raise BackendLostMidway(cause) from exc
    await heartbeat.end()


def _lost_midway(client: Client) -> Problem:
    if client.peer is None:
        return errors.backend_lost_midway(client.model)
    return unready.peer_lost_midway(client.model, client.peer)


async def fail(problem: Problem, client: Client) -> None:
    """In a stream that has begun: its error, as an event. The caller must not complete it."""
    await client.heartbeat.send(client.error_event(problem))


async def _whole(head: Message, body: bytes, client: Client) -> None:
    """All of it was here together with its head, as small answers often are."""
    if body:
        client.on_first_byte()
        client.request.relayed_bytes += len(body)
    client.heartbeat.sending = True
    await client.send({**head, BODY_FOLLOWS: True})
    await client.send({"type": "http.response.body", "body": body})


async def _as_it_comes(content: aiohttp.StreamReader, client: Client) -> None:
    chunk = await content.readany()
    if chunk:
        client.on_first_byte()
    request = client.request
    begins_line = True
    try:
        while chunk:
            if chunk[0] != _COMMENT or not begins_line:
                request.relayed_bytes += len(chunk)
            begins_line = chunk[-1] == _NEWLINE
            await client.heartbeat.send(chunk)
            chunk = await content.readany()
    except BaseException:
        client.last_piece = chunk
        raise


async def _as_event(response: aiohttp.ClientResponse, client: Client) -> None:
    """The stream has begun, and what the engine says now is none: mostly an error of its own."""
    heartbeat = client.heartbeat
    if response.status >= HTTPStatus.BAD_REQUEST:
        body = await beginning(response)
        client.on_first_byte()
        if _is_error(body):
            await heartbeat.send(error_shape.event(client.errors, body))
        else:
            await fail(errors.backend_error(client.model, response.status), client)
        return
    await heartbeat.send(_DATA)
    async for chunk in response.content.iter_any():
        client.request.relayed_bytes += len(chunk)
        await heartbeat.send(chunk.replace(b"\n", b"\n" + _DATA))
    await heartbeat.send(b"\n\n")


async def beginning(response: aiohttp.ClientResponse) -> bytes:
    """All of it, unless it is longer than anything that we look into."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MOST_BYTES:
            break
    return bytes(body)


def _says_an_error(piece: bytes) -> bool:
    """A peer whose engine died says so itself, before its answer ends short."""
    last = piece.rstrip(b"\r\n").rpartition(b"\n\n")[2]
    return last.startswith(_ERROR_EVENTS)


def _is_error(body: bytes) -> bool:
    """Whether it says in JSON what is wrong, as clients look for it."""
    try:
        return "error" in msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return False


@contextmanager
def ending_with_connection(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Whoever reads the answer sees the end of its connection.

    The client library tells them, but not after bytes that are no valid HTTP: it closes the
    connection and leaves its reader waiting for ever.
    """
    content, connection = response.content, response.connection
    protocol = connection.protocol if connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if closed is None:  # the whole answer is here
        yield
        return

    def end(_: object) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the answer is not valid HTTP"))

    closed.add_done_callback(end)
    closed.add_done_callback(_look_at)
    try:
        yield
    finally:
        closed.remove_done_callback(end)


def _look_at(closed: asyncio.Future[None]) -> None:
    """How the connection ended: what nobody looks at is logged as an error."""
    if not closed.cancelled():
        closed.exception()
