"""Agents that know each other, and peers that say exactly what a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.peering import Address
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.peer import NOBODY, Peer, Peers
from reconciler.proxy.peers.side import ClusterSide
from reconciler.status import ModelStatus
from tests.proxy.agent import Agent, running_agent

TOKEN = "cluster-secret"


@dataclass
class Known:
    """The peers that a test tells of; what failed is noted."""

    peers: Peers = NOBODY
    lost: list[tuple[Address, str]] = field(default_factory=list)

    def current(self) -> Peers:
        return self.peers

    def load(self, peer: Address, model: ModelName) -> ModelLoad:
        return IDLE

    def heard(self, peer: Address, model: ModelName, load: ModelLoad) -> None:
        """Of no interest here."""

    def failed(self, peer: Address, because: str) -> None:
        self.lost.append((peer, because))

    def side(self, token: str | None = None) -> ClusterSide:
        return ClusterSide(peers=self, loads=self, tokens=lambda: token)


def peer(port: int, node: str | None = "node-b", *, host: str = "127.0.0.1", **more: Any) -> Peer:
    given = {"pod_name": "pod-b", "pod_ip": "10.1.2.4", "reachable": True, **more}
    return Peer(
        address=Address(host=host, port=port),
        document=b"{}",
        node=NodeName(node) if node is not None else None,
        **given,
    )


@dataclass(frozen=True)
class Pair:
    """`a` knows `b`, and is known to it."""

    a: Agent
    b: Agent
    known: Known


@asynccontextmanager
async def pair(
    *models_of_b: ModelStatus,
    token: str | None = None,
    token_of_b: str | None = None,
    **agents: Any,
) -> AsyncIterator[Pair]:
    """`token_of_b`: where it is another one."""
    known, known_to_b = Known(), Known()
    async with AsyncExitStack() as stack:
        other = known_to_b.side(token_of_b or token)
        b = await stack.enter_async_context(running_agent(*models_of_b, cluster=other, **agents))
        a = await stack.enter_async_context(running_agent(cluster=known.side(token), **agents))
        b.board.now = replace(
            b.board.now, node=NodeName("node-b"), pod_name="pod-b", pod_ip="10.1.2.4"
        )
        known.peers = Peers(all=(peer(b.port),))
        known_to_b.peers = Peers(all=(peer(a.port, "node-a", pod_name="pod-a", pod_ip="10.1.2.3"),))
        yield Pair(a, b, known)


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def beside(answer: Answer, **more: Any) -> AsyncIterator[tuple[Agent, Known]]:
    """An agent whose only peer, node-b, is whatever answers."""
    known = Known()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        known.peers = Peers(all=(peer(server.sockets[0].getsockname()[1]),))
        async with running_agent(cluster=known.side(**more)) as agent:
            yield agent, known
            server.close()
