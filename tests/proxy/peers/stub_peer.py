"""Agents that only tell of themselves: any number of them in one process, on real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from reconciler.plan.peering import Address


def model_entry(name: str = "llm", **more: Any) -> dict[str, Any]:
    given = {
        "name": name,
        "aliases": [],
        "model_type": "llm",
        "state": "loaded",
        "reason": "serves",
    }
    return {**given, "in_flight": 0, "gpu_ids": [], **more}


@dataclass
class StubPeer:
    """`fields` are of its server object. `old`: of a release without waiting. `hangs_up`: it ends
    each connection after an answer, and has not said so before."""

    node: str = "stub"
    agent_id: str = "stub-id"
    version: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)
    old: bool = False
    hangs_up: bool = False
    asked: list[dict[str, str]] = field(default_factory=list)
    open_connections: int = 0
    told_whole: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _encoded: tuple[int, bytes] = (-1, b"")

    def serve(self, *models: dict[str, Any]) -> None:
        """These, loaded, from now on."""
        self.change(models=list(models), loaded_models=list(models))

    def change(self, **fields: Any) -> None:
        self.fields = {**self.fields, **fields}
        self.version += 1
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def whole(self) -> bytes:
        self.told_whole += 1
        if self._encoded[0] != self.version:
            given: dict[str, Any] = {
                "node": self.node,
                "pod_name": None,
                "pod_ip": None,
                "models": [],
            }
            new = {} if self.old else {"agent_id": self.agent_id}
            body = {**given, "version": self.version, **new, **self.fields}
            self._encoded = (self.version, json.dumps(body).encode())
        return self._encoded[1]

    def unchanged(self) -> bytes:
        told = {"version": self.version, "agent_id": self.agent_id, "load": self.load}
        return json.dumps({"api": 1, "unchanged": True, **told}).encode()

    async def answer(self, asked: dict[str, str]) -> bytes:
        self.asked.append(asked)
        known = (asked.get("after"), asked.get("agent"))
        if self.old or known != (str(self.version), self.agent_id):
            return self.whole()
        try:
            async with asyncio.timeout(float(asked["wait"])):
                await self.changed.wait()
        except TimeoutError:
            return self.unchanged()
        return self.whole()


class _Connection(asyncio.Protocol):
    def __init__(self, peer: StubPeer, among: set["_Connection"]) -> None:
        self._peer = peer
        self._among = among
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._peer.open_connections += 1
        self._among.add(self)

    def data_received(self, data: bytes) -> None:
        target = data.split(b" ", 2)[1].decode()
        asked = {key: values[-1] for key, values in parse_qs(urlsplit(target).query).items()}
        self._task = asyncio.create_task(self._answer(asked, close=b"Connection: close" in data))

    async def _answer(self, asked: dict[str, str], *, close: bool) -> None:
        body = await self._peer.answer(asked)
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if close or self._peer.hangs_up:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.open_connections -= 1
        self._among.discard(self)
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()


@asynccontextmanager
async def stub_peers(peers: Iterable[StubPeer]) -> AsyncIterator[tuple[Address, ...]]:
    """Their addresses, in their order."""
    loop, servers, among = asyncio.get_running_loop(), [], set[_Connection]()
    try:
        for peer in peers:
            servers.append(
                await loop.create_server(partial(_Connection, peer, among), "127.0.0.1", 0)
            )
        yield tuple(
            Address(host="127.0.0.1", port=server.sockets[0].getsockname()[1]) for server in servers
        )
    finally:
        for server in servers:
            server.close()
        for connection in list(among):
            connection.abort()
        while among:  # noqa: ASYNC110 - each says itself when it is closed
            await asyncio.sleep(0)
