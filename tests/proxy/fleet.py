"""Several agents that know each other, each of what the others' boards say just now."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.peering import Address
from reconciler.plan.phase import State
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.peer import Peer, PeerModel, Peers
from reconciler.proxy.peers.side import ClusterSide
from reconciler.status import ModelStatus, Status
from tests.proxy.agent import Agent, running_agent


def peer_model(told: ModelStatus, **more: Any) -> PeerModel:
    """As its node tells of it."""
    given = {
        "aliases": told.aliases,
        "enabled": told.state is not State.DISABLED,
        "serves": told.endpoint is not None,
        "max_in_flight": told.max_in_flight,
        "affinity": told.affinity,
        "retry_at": told.retry_at,
        **more,
    }
    return PeerModel(name=told.name, type=told.type, state=told.state, reason=told.reason, **given)


def peer_of(address: Address, status: Status, *, because: str | None = None) -> Peer:
    return Peer(
        address=address,
        document=b"{}",
        node=status.node,
        pod_name=status.pod_name,
        reachable=because is None,
        because=because,
        draining=status.draining,
        models={each.name: peer_model(each) for each in status.models},
    )


@dataclass
class Mates:
    """What one agent knows of the others. `lost`: why which one cannot be reached; `told`: loads;
    `raw`: peers that are no agents.
    `sees_all`: the loads are as they are just now, not as they were told."""

    agents: list[Agent] = field(default_factory=list)
    raw: list[Peer] = field(default_factory=list)
    lost: dict[Address, str] = field(default_factory=dict)
    told: dict[tuple[Address, ModelName], ModelLoad] = field(default_factory=dict)
    sees_all: bool = False
    token: str | None = None
    _frozen: Peers | None = None
    _made: tuple[object, Peers] = ((), Peers())

    def freeze(self) -> None:
        """What it knows is old from now on."""
        self._frozen = self.current()

    def current(self) -> Peers:
        if self._frozen is not None:
            return self._frozen
        boards = tuple(agent.board.now for agent in self.agents)
        state = (boards, tuple(self.raw), tuple(self.lost.items()))
        if self._made[0] != state:
            self._made = (state, Peers(all=tuple(sorted(self._every(), key=_node))))
        return self._made[1]

    def load(self, peer: Address, model: ModelName) -> ModelLoad:
        if self.sees_all:
            agent = next(each for each in self.agents if at(each) == peer)
            now = ModelLoad(in_flight=agent.traffic.of_model(model))
            if self.told.get((peer, model)) != now:
                self.told[peer, model] = now
        return self.told.get((peer, model), IDLE)

    def heard(self, peer: Address, model: ModelName, load: ModelLoad) -> None:
        self.told[peer, model] = load

    def failed(self, peer: Address, because: str) -> None:
        self.lost[peer] = because

    def side(self) -> ClusterSide:
        return ClusterSide(peers=self, loads=self, tokens=lambda: self.token)

    def _every(self) -> list[Peer]:
        known = [
            peer_of(at(agent), agent.board.now, because=self.lost.get(at(agent)))
            for agent in self.agents
        ]
        return [*known, *(each for each in self.raw if each.address not in self.lost)]


@dataclass(frozen=True)
class Fleet:
    nodes: Mapping[str, Agent]
    mates: Mapping[str, Mates]

    def __getitem__(self, name: str) -> Agent:
        return self.nodes[f"node-{name}"]

    def load(self, on: str, model: str = "llm", **load: Any) -> None:
        """Tell all others how busy the model is on that node."""
        told = ModelLoad(**load)
        for node, mates in self.mates.items():
            if node != f"node-{on}":
                mates.heard(at(self[on]), ModelName(model), told)

    @property
    def under_way(self) -> int:
        """Requests that any node counts, at its backends or at peers."""
        return sum(agent.traffic.total + agent.visits.away.total() for agent in self.nodes.values())


def at(agent: Agent) -> Address:
    return Address(host="127.0.0.1", port=agent.port)


@asynccontextmanager
async def fleet(
    settings: Mapping[str, Any] | None = None,
    token: str | None = None,
    sees_all: bool = False,
    **models: tuple[ModelStatus, ...],
) -> AsyncIterator[Fleet]:
    """`models`: by the last letter of the node's name: `a=(...)` is node-a."""
    async with AsyncExitStack() as stack:
        nodes: dict[str, Agent] = {}
        known: dict[str, Mates] = {}
        for letter, own in models.items():
            node = f"node-{letter}"
            known[node] = Mates(token=token, sees_all=sees_all)
            nodes[node] = await stack.enter_async_context(
                running_agent(*own, node=node, cluster=known[node].side(), settings=settings)
            )
        for node, mates in known.items():
            mates.agents = [agent for other, agent in nodes.items() if other != node]
        yield Fleet(nodes, known)


def raw_peer(port: int, *models: ModelStatus, node: str = "node-z", **more: Any) -> Peer:
    return Peer(
        address=Address(host="127.0.0.1", port=port),
        document=b"{}",
        node=NodeName(node),
        reachable=True,
        models={each.name: peer_model(each, serves=True, **more) for each in models},
    )


def _node(peer: Peer) -> str:
    return str(peer.node)


async def until(holds: Any) -> None:
    """Of what has no event."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
