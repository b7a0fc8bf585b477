"""What the HTTP side is given of the cluster."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.condition import Condition
from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.own_address import OwnAddress
from reconciler.proxy.peers.peer import NOBODY, Latest, PeerLoads, PeerReader, Peers


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSide:
    """`tokens`: what agents prove themselves to each other with, as of now; None: none is set.
    `agent_id`: of this process, by which agents are told apart whatever they are called. `own`:
    where it is reached; None: it is not told. `latest`: what a peer said last of what changes all
    the time. `conditions`: of the cluster, as this node sees it."""

    peers: PeerReader
    loads: PeerLoads
    tokens: Callable[[], str | None] = lambda: None
    agent_id: str = field(default_factory=lambda: secrets.token_hex(8))
    own: OwnAddress | None = None
    latest: Callable[[Address], Latest | None] = lambda address: None
    conditions: Callable[[], tuple[Condition, ...]] = tuple

    @property
    def token(self) -> str | None:
        return self.tokens()


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
