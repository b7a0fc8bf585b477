"""Servers to compare with: `python -m tests.bench.simple_servers KIND [UPSTREAM]`.

uvicorn      answers a constant: the floor of any server on it, with its own httptools protocol
connection   the same behind our own connection class, as the agent is served
aiohttp      one that passes each request to UPSTREAM's port with an aiohttp session and nothing
             else: no routing, no look into the body, no watch over the client; served as the agent

The port is in the first line.
"""

import asyncio
import signal
import socket
import sys

import aiohttp
import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler import log
from reconciler.proxy.server import serve
from tests.bench import wire

_JSON_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(wire.JSON_ANSWER)).encode()),
]
_STREAM_HEADERS = [(b"content-type", b"text/event-stream")]
_HOP_BY_HOP = (b"transfer-encoding", b"connection")


async def _body(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    more = True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(chunks)


async def _lifespan(receive: Receive, send: Send) -> None:
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})


async def _constant(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    body = await _body(receive)
    tag, events = wire.tag_of(body), wire.events_wanted(body)
    headers = _JSON_HEADERS if events is None else _STREAM_HEADERS
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if tag is not None:
        await send({"type": "http.response.body", "body": wire.EVENT, "more_body": True})
        await receive()  # the client leaves
        return
    for _ in range(events or 0):
        await asyncio.sleep(wire.INTERVAL_SECONDS)
        await send({"type": "http.response.body", "body": wire.EVENT, "more_body": True})
    last = wire.JSON_ANSWER if events is None else wire.LAST_EVENT
    await send({"type": "http.response.body", "body": last})


def _passing_to(upstream: str, session: aiohttp.ClientSession) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        body = await _body(receive)
        headers = [(key.decode(), value.decode()) for key, value in scope["headers"]]
        url = f"http://127.0.0.1:{upstream}{scope['path']}"
        async with session.post(url, data=body, headers=headers) as answer:
            lowered = [(name.lower(), value) for name, value in answer.raw_headers]
            kept = [(name, value) for name, value in lowered if name not in _HOP_BY_HOP]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    return app


async def _uvicorn(sock: socket.socket) -> None:
    """Ends by SIGTERM, as uvicorn does by itself."""
    config = uvicorn.Config(
        _constant,
        http="httptools",
        ws="none",
        loop="none",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve(sockets=[sock])


async def _ours(kind: str, upstream: str, sock: socket.socket) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connector = aiohttp.TCPConnector(limit=0)
    no_limit = aiohttp.ClientTimeout()
    async with aiohttp.ClientSession(
        connector=connector, timeout=no_limit, auto_decompress=False
    ) as session:
        app = _constant if kind == "connection" else _passing_to(upstream, session)
        await serve(app, sock, stop=stop, grace_seconds=1)


async def _main(kind: str, upstream: str) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    await (_uvicorn(sock) if kind == "uvicorn" else _ours(kind, upstream, sock))


if __name__ == "__main__":
    log.configure(form="json", level="error")  # to stderr: nobody reads on in stdout
    uvloop.run(_main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
