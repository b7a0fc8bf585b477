"""uvicorn inside our own event loop, on a socket that is already bound.

It installs no signal handlers: the agent has its own (R10).
"""

import asyncio
import contextlib
import logging
import math
import re
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_BYTES = 64 * 1024
_quiet = logging.getLogger(__name__)
"""For uvicorn's lines about single requests: the application has logged what matters of them."""
_quiet.setLevel(logging.CRITICAL)
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r]*", re.IGNORECASE)
_LAST_RESORT_SECONDS = 5
"""From closing the connections to cancelling handlers that did not notice."""
_KEEPALIVE_SECONDS = 75
"""Longer than the 60 s after which usual load balancers close an idle connection themselves."""
_VANISHED = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A client whose host is gone without a word is noticed after a minute."""


async def serve(
    app: ASGIApp,
    sock: socket.socket,
    *,
    stop: asyncio.Event,
    grace_seconds: float = 5.0,
    arrival_seconds: float = 30.0,
) -> None:
    """Answer on `sock` until `stop` is set (or the caller is cancelled), then close it.

    Answers under way have `grace_seconds` to end, none when cancelled; then their connections are
    closed, which their handlers see as clients that left. Returns when nothing of it runs any more.
    `arrival_seconds`: how long a head, or the next piece of a body, may take to arrive.
    """
    for option, seconds in _VANISHED:
        sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    server = _Server(_config(app, arrival_seconds, grace_seconds))
    serving = asyncio.create_task(server.serve(sockets=[sock]), name="http-server")
    stopping = asyncio.create_task(stop.wait(), name="http-stop")
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await asyncio.wait((serving,), timeout=grace_seconds)
    finally:
        stopping.cancel()
        server.should_exit = True
        while not serving.done():
            server.close_connections()
            await asyncio.wait((serving,), timeout=0.1)
    await serving


def _config(app: ASGIApp, arrival_seconds: float, grace_seconds: float) -> uvicorn.Config:
    class Protocol(_Impatient):
        _seconds = arrival_seconds

    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        loop="none",
        interface="asgi3",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEPALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(grace_seconds) + _LAST_RESORT_SECONDS,
    )


def _without_upgrade(data: bytes) -> bytes:
    """The start of a request, without the offer to speak another protocol.

    Java's HttpClient offers h2c with every request, and the parser would take the body for that
    protocol: uvicorn with httptools waits for ever for a body that is there.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"", head) + end + rest if end and _UPGRADE.search(head) else data


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def close_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class _Impatient(HttpToolsProtocol):
    """Gives up requests that never arrive; uvicorn's own class bounds neither head nor body.

    A head has a size, and a time from its first byte to its last. Of a body each piece has that
    time; its size is the application's affair. Requests that arrive at once cost no timer.
    """

    _seconds: float
    _at_start = True
    _in_head = False
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _quiet
        self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = self._at_start = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._at_start = True
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(_without_upgrade(data) if self._at_start else data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self.transport.close()
            elif self._timer is None:
                self._start_timer()
            return
        self._stop_timer()
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
