"""uvicorn inside our own event loop, on a socket that is already bound.

It installs no signal handlers: the agent has its own (R10).
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD_BYTES = 64 * 1024
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
    head_seconds: float = 20.0,
) -> None:
    """Answer on `sock` until `stop` is set (or the caller is cancelled), then close it.

    Answers under way have `grace_seconds` to end, none when cancelled; then their connections are
    closed, which their handlers see as clients that left. Returns when nothing of it runs any more.
    `head_seconds`: how long a client may take to send the head of a request.
    """
    for option, seconds in _VANISHED:
        sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    server = _Server(_config(app, head_seconds))
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


def _config(app: ASGIApp, head_seconds: float) -> uvicorn.Config:
    class Protocol(_BoundedHead):
        _head_seconds = head_seconds

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
    )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def close_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.close()


class _BoundedHead(HttpToolsProtocol):
    """Bounds the head of a request in size and time; uvicorn's own class bounds neither."""

    _head_seconds: float
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self._head_seconds, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
