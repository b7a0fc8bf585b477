"""The HTTP side on a real socket, and clients that speak to it."""

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from reconciler.metrics import Metrics
from reconciler.observe.engine_pages import EnginePages
from reconciler.proxy.app import create_app
from reconciler.proxy.as_of import Beats
from reconciler.proxy.bounds import Bounds
from reconciler.proxy.forward import Upstream
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.peers.side import ALONE, ClusterSide
from reconciler.proxy.server import serve
from reconciler.proxy.visits import Visits
from reconciler.status import ModelStatus
from tests.proxy.builders import STEADY, Board, Operators, status

CHAT = "/v1/chat/completions"
_DEADLINE_SECONDS = 60.0
"""Only a hang reaches it. pytest-timeout's signal does not wake an idle uvloop."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


@dataclass
class Agent:
    board: Board
    traffic: Traffic
    port: int
    stop: asyncio.Event
    server: asyncio.Task[None]
    session: aiohttp.ClientSession
    operators: Operators
    metrics: Metrics
    visits: Visits
    upstream: Upstream
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def request(
        self, method: str, path: str, *, body: Any = None, headers: Any = None
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        async with self.session.request(
            method,
            URL(self.url(path), encoded=True),
            data=io.BytesIO(data) if data else None,
            headers=headers,
            allow_redirects=False,
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.request("GET", path, **more)

    async def chat(self, body: Any, path: str = CHAT, **more: Any) -> Answer:
        return await self.request("POST", path, body=body, **more)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare connection, closed with the agent when the test did not."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.connections.append(writer)
        return reader, writer

    async def until_refused(self) -> None:
        """Until nothing listens on the port any more."""
        async with asyncio.timeout(_DEADLINE_SECONDS):
            with suppress(ConnectionError):
                while True:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    await asyncio.sleep(0.01)

    async def send_raw(
        self, body: Any, path: str = CHAT
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect()
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: agent\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def running_agent(
    *models: ModelStatus,
    body_bytes: int = 1 << 26,
    settings: Mapping[str, Any] | None = None,
    operators: Operators | None = None,
    pulse: Beats | None = None,
    cluster: ClusterSide = ALONE,
    node: str = "node-a",
    **serving: float,
) -> AsyncIterator[Agent]:
    """`settings` are its bounds, `serving` of the server."""
    board, traffic, stop = Board(status(*models, node=node)), Traffic(), asyncio.Event()
    operators = operators or Operators()
    sock = socket.create_server(("127.0.0.1", 0))
    port: int = sock.getsockname()[1]
    metrics, pages = Metrics(node=board.now.node), EnginePages()
    upstream, visits = Upstream(), Visits()
    app = create_app(
        board,
        traffic=traffic,
        metrics=metrics,
        management=operators.management(ending=stop),
        downloads=operators.jobs,
        hub=operators.hub,
        pages=pages,
        bounds=Bounds(body_bytes=body_bytes, **settings or {}),
        pulse=pulse or STEADY,
        upstream=upstream,
        cluster=cluster,
        visits=visits,
    )
    async with pages, aiohttp.ClientSession() as session, asyncio.timeout(_DEADLINE_SECONDS):
        server = asyncio.create_task(serve(app, sock, stop=stop, let_go=upstream.close, **serving))
        agent = Agent(
            board, traffic, port, stop, server, session, operators, metrics, visits, upstream
        )
        try:
            yield agent
        finally:
            for writer in agent.connections:
                writer.close()
            stop.set()
            with suppress(asyncio.CancelledError):
                await server
