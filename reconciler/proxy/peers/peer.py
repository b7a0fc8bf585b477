"""What is known of the other agents: immutable, and replaced as a whole when any of it changes.

Load figures are not in it: they change with every request (`PeerLoads`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.plan.desired import Affinity, ModelType
from reconciler.plan.ids import ModelName, NodeName, SpecHash
from reconciler.plan.peering import Address, Names, named
from reconciler.plan.phase import State
from reconciler.proxy.peers.load import ModelLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerModel:
    """One model as a peer tells of it. `serves`: requests may be sent there. `serves_since`:
    monotonic seconds here, from when on that was seen; None: since before we saw the peer, or it
    does not."""

    name: ModelName
    type: ModelType
    state: State
    reason: str
    aliases: tuple[str, ...] = ()
    enabled: bool = True
    serves: bool = False
    serves_since: float | None = None
    max_in_flight: int | None = None
    affinity: Affinity = Affinity.NONE
    retry_at: str | None = None
    spec_hash: SpecHash | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One other agent. `node`: None: it has never been seen. `because`: why it is not `reachable`;
    None: it is. `refuses`: it answers then, too, and tells nothing. `since`: RFC 3339, UTC, of that
    change. `document`: its server object as it was told last, as JSON; empty: it has never been
    seen. `applied`: the revision of its manifest. `silent`: its loop has fallen silent."""

    address: Address
    document: bytes
    node: NodeName | None = None
    agent_id: str | None = None
    pod_name: str | None = None
    pod_ip: str | None = None
    reachable: bool = False
    because: str | None = None
    refuses: bool = False
    since: str | None = None
    draining: bool = False
    silent: bool = False
    applied: str | None = None
    gpu_free_bytes: int | None = None
    models: Mapping[ModelName, PeerModel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheard:
    """An agent that has never been seen, or a place of `--peers` that has led nowhere yet. `cause`:
    why, as a clause. `since`: RFC 3339, UTC, from when on it is looked for."""

    cause: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """All known ones, without this node, sorted by node, then address. `unfound`: places of
    `--peers` that have led nowhere yet."""

    all: tuple[Peer, ...] = ()
    unfound: tuple[Unheard, ...] = ()

    def named(self, target: str) -> Peer | None:
        """While a pod is replaced, two have the node's name, and several agents may have one IP:
        rather one that can be reached, and of those the one that came last, or else the one that
        was lost last."""
        return max(named(target, self.all, _names), key=_newest, default=None)

    @property
    def unheard(self) -> tuple[Unheard, ...]:
        """Whatever this node does not know may be there."""
        unseen = (
            Unheard(cause=f"{peer.address} {peer.because}", since=peer.since)
            for peer in self.all
            if peer.node is None and peer.since is not None
        )
        return (*self.unfound, *unseen)

    @property
    def names(self) -> tuple[str, ...]:
        """For messages: of those that have never been seen, the address."""
        return tuple(peer.node or str(peer.address) for peer in self.all)


def _names(peer: Peer) -> Names:
    return Names(node=peer.node, pod_name=peer.pod_name, pod_ip=peer.pod_ip, address=peer.address)


def _newest(peer: Peer) -> tuple[bool, str]:
    return peer.reachable, peer.since or ""


NOBODY = Peers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """What a peer said last of what changes all the time. `heard_at`: monotonic seconds. `moment`:
    `now`, `as_of` and `loop` of its server object; empty: as they stand there."""

    heard_at: float
    loads: Mapping[ModelName, ModelLoad] = field(default_factory=dict)
    moment: Mapping[str, object] = field(default_factory=dict)


class PeerReader(Protocol):
    """The known peers; a change is a new object. Any node may ask at any moment: nothing waits."""

    def current(self) -> Peers: ...


class PeerLoads(Protocol):
    """The newest load figures of peers' models, and where they are reported to."""

    def load(self, peer: Address, model: ModelName) -> ModelLoad: ...

    def heard(self, peer: Address, model: ModelName, load: ModelLoad) -> None:
        """It came with an answer just now."""

    def failed(self, peer: Address, because: str) -> None:
        """A connection to it could not be made, or it broke off: it leaves the rotation now."""
