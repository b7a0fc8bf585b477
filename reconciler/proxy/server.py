"""uvicorn inside our own event loop, on a socket that is already bound.

It installs no signal handlers: the agent has its own (R10).
"""

import asyncio
import contextlib
import math
import socket
from collections.abc import Awaitable, Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from reconciler.proxy.connection import Connection, Limits
from reconciler.proxy.hangups import Hangups

_LAST_RESORT_SECONDS = 5
"""From closing the connections to cancelling handlers that did not notice."""
_LAST_WORD_SECONDS = 1.0
"""For answers that are cut: to say so."""
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
    keepalive_seconds: float = _KEEPALIVE_SECONDS,
    linger_seconds: float = 5.0,
    let_go: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Answer on `sock` until `stop` is set (or the caller is cancelled), then close it.

    Answers under way have `grace_seconds` to end, none when cancelled; then `let_go` is called, by
    which they lose what they wait for and say so, and a moment later their connections are closed,
    which their handlers see as clients that left. Returns when nothing of it runs any more. The
    other times are those of `connection.Limits`.
    """
    for option, seconds in _VANISHED:
        sock.setsockopt(socket.IPPROTO_TCP, option, seconds)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limits = Limits(
        arrival_seconds=arrival_seconds,
        keepalive_seconds=keepalive_seconds,
        linger_seconds=linger_seconds,
    )
    hangups = Hangups()
    server = _Server(_config(app, limits, hangups, grace_seconds))
    serving = asyncio.create_task(server.serve(sockets=[sock]), name="http-server")
    stopping = asyncio.create_task(stop.wait(), name="http-stop")
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await asyncio.wait((serving,), timeout=grace_seconds)
        if let_go is not None and not serving.done():
            await let_go()
            await asyncio.wait((serving,), timeout=_LAST_WORD_SECONDS)
    finally:
        stopping.cancel()
        server.should_exit = True
        while not serving.done():
            server.close_connections()
            await asyncio.wait((serving,), timeout=0.1)
        hangups.close()
    await serving


def _config(
    app: ASGIApp, limits_: Limits, hangups_: Hangups, grace_seconds: float
) -> uvicorn.Config:
    class Limited(Connection):
        limits = limits_
        hangups = hangups_

    return uvicorn.Config(
        app,
        http=Limited,
        ws="none",
        lifespan="on",
        loop="none",
        interface="asgi3",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(grace_seconds) + _LAST_RESORT_SECONDS,
    )


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def close_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
