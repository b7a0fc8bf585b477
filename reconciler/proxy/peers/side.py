"""What the HTTP side is given of the cluster."""

from dataclasses import dataclass

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.peer import NOBODY, PeerLoads, PeerReader, Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSide:
    """`token`: what agents prove themselves to each other with; None: none is set."""

    peers: PeerReader
    loads: PeerLoads
    token: str | None = None


class _Alone:
    def current(self) -> Peers:
        return NOBODY

    def load(self, peer: Address, model: ModelName) -> ModelLoad:
        return IDLE

    def heard(self, peer: Address, model: ModelName, load: ModelLoad) -> None:
        """Nobody answers a node that asks nobody."""

    def failed(self, peer: Address, because: str) -> None:
        """Nor fails it."""


_ALONE = _Alone()
ALONE = ClusterSide(peers=_ALONE, loads=_ALONE)
"""Of a node without `--peers`."""
