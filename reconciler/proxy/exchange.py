"""One request and its answer: what ASGI's `receive` and `send` are on a connection."""

import asyncio
import http
from enum import IntEnum
from typing import Protocol

import structlog
from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import FlowControl

from reconciler.errors import Bug
from reconciler.proxy.client import Presence
from reconciler.proxy.errors import Header, Problem

_STATUS_LINES = {status: b"HTTP/1.1 %d \r\n" % status for status in range(200, 600)} | {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
    if status >= 200
}
_WITHOUT_BODY = (204, 304)
BODY_FOLLOWS = "xgen.body_follows"
"""In the message that begins an answer: the next one comes at once, so both go out together."""
_DISCONNECT: Message = {"type": "http.disconnect"}

log = structlog.get_logger()


class Answer(IntEnum):
    """How far it is. Written: nothing is missing on the wire. Ended: the application said so."""

    AWAITED = 0
    BEGUN = 1
    WRITTEN = 2
    ENDED = 3


_AWAITED, _BEGUN, _WRITTEN, _ENDED = Answer  # each look-up in the class takes 80 ns on 3.11


class Wire(Protocol):
    """The connection, as an exchange needs it."""

    @property
    def flow(self) -> FlowControl: ...

    def default_headers(self) -> list[Header]: ...

    def write(self, data: bytes) -> None: ...

    def answered(self, exchange: "Exchange") -> None:
        """The next one may be answered."""

    def cut(self, exchange: "Exchange") -> None:
        """Its answer will never be whole."""

    def reset_at_end(self, on: bool) -> None:
        """However the connection ends from now on, it is by a reset, or as usual again."""


class Exchange:
    """`last`: the connection ends behind it. `body_complete`: all of its body has come.

    Its application hears that the client left by a disconnect, and sends into the void from then.
    """

    def __init__(self, scope: Scope, wire: Wire, *, last: bool, expects_continue: bool) -> None:
        scope["state"]["presence"] = self._presence = Presence()
        self.scope = scope
        self.last = last
        self.body_complete = False
        self.answer = _AWAITED
        self._wire = wire
        self._expects_continue = expects_continue
        self._body = bytearray()
        self._news = False
        self._waiter: asyncio.Future[None] | None = None
        self._disconnected = False
        self._chunked = False
        self._resetting = False
        self._held_head = b""
        self._missing_bytes: int | None = None
        """Of the answer, where its length is known."""

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:  # the boundary of a request; ours answers its own failures
            log.exception("request failed", path=self.scope["path"])
        finally:
            if self.answer < _WRITTEN:
                self._wire.cut(self)

    # What the connection says.

    def take(self, piece: bytes) -> int:
        """The size of what is kept for the application. Once it answers, it reads no more."""
        if self.answer is _AWAITED:
            self._body += piece
            self._wake()
        return len(self._body)

    def complete_body(self) -> None:
        self.body_complete = True
        self._wake()

    def refuse(self, problem: Problem) -> None:
        """The rest of the request cannot be read; `Frame` answers, if nobody has."""
        self.scope["state"]["refused"] = problem
        self._disconnected = True
        self._wake()

    def leave(self) -> None:
        self._disconnected = True
        self._wake()
        self._presence.end()

    # What the application calls.

    async def receive(self) -> Message:
        if self._expects_continue and self.answer is _AWAITED and not self._disconnected:
            self._expects_continue = False
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self._is_over():
            await self._wait_for_news()
        if self._is_over():
            return _DISCONNECT
        body, self._body = bytes(self._body), bytearray()
        self._wire.flow.resume_reading()  # behind the last piece too: the client may leave
        return {"type": "http.request", "body": body, "more_body": not self.body_complete}

    async def _wait_for_news(self) -> None:
        if not self._news:
            if self._waiter is None or self._waiter.done():
                self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._news = False

    def _wake(self) -> None:
        self._news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _is_over(self) -> bool:
        return self._disconnected or self.answer is _ENDED

    async def send(self, message: Message) -> None:
        if self._wire.flow.write_paused and not self._presence.gone:
            await self._wire.flow.drain()
        if self._presence.gone:
            return
        if message["type"] == "http.response.start":
            self._begin(message)
        else:
            self._go_on(message.get("body", b""), more=message.get("more_body", False))

    def _begin(self, message: Message) -> None:
        status: int = message["status"]
        if self.answer is not _AWAITED or status not in _STATUS_LINES:
            raise Bug(f"cannot begin an answer with status {status}: {self.answer.name}")
        if not self.body_complete:
            self.last = True
        parts = [_STATUS_LINES[status]]
        for name, value in (*self._wire.default_headers(), *message["headers"]):
            if name == b"connection":  # `close`, of our own: other sides' are not passed on
                self.last = True
                continue
            parts.append(b"%s: %s\r\n" % (name, value))
            if name == b"content-length":
                self._missing_bytes = int(value)
        if self.last:
            parts.append(b"connection: close\r\n")
        self._choose_framing(status)
        if self._chunked:
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        head = b"".join(parts)
        if not head.count(b"\n") == head.count(b"\r") == len(parts):
            raise Bug("cannot begin an answer: a header has the end of a line in it")
        self.answer = _BEGUN
        if self._body:  # of which nobody will ask any more; while it is read on, an end is heard
            self._body.clear()
            self._wire.flow.resume_reading()
        if self._missing_bytes == 0:
            self._wire.write(head)
            self._end_on_wire()
        elif BODY_FOLLOWS in message:
            self._held_head = head
        else:
            self._wire.write(head)

    def _choose_framing(self, status: int) -> None:
        """RFC 9112, section 6.1: no chunks for HTTP/1.0. The end of the connection is that of the
        answer then, so an earlier end must not be a clean one.
        """
        if self.scope["method"] == "HEAD" or status in _WITHOUT_BODY:
            self._missing_bytes = 0
        elif self._missing_bytes is None and self.scope["http_version"] == "1.1":
            self._chunked = True
        elif self._missing_bytes is None:
            self._resetting = True
            self._wire.reset_at_end(True)

    def _go_on(self, body: bytes, *, more: bool) -> None:
        if self.answer is _BEGUN:
            data = self._framed(body, more)
            if self._held_head:
                data, self._held_head = self._held_head + data, b""
            if data:
                self._wire.write(data)
            if not more:
                self._missing_bytes = 0
            if self._missing_bytes == 0:
                self._end_on_wire()
        elif self.answer is not _WRITTEN:
            raise Bug(f"cannot go on with an answer: {self.answer.name}")
        if not more:
            self.answer = _ENDED
            self._wake()

    def _framed(self, body: bytes, more: bool) -> bytes:
        if self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        if self._missing_bytes is not None:
            self._missing_bytes -= len(body)
            if self._missing_bytes < 0 or (self._missing_bytes and not more):
                raise Bug("cannot go on with an answer: it has not the length that it said")
        return body

    def _end_on_wire(self) -> None:
        """The client may know by the length that this was all, before the application says so."""
        self.answer = _WRITTEN
        if self._resetting:
            self._wire.reset_at_end(False)
        self._wire.answered(self)
