"""The replicas of a model that a request may go to, with the figures of each."""

import random
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from reconciler.plan.desired import Affinity
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.peering import Address
from reconciler.proxy import balance
from reconciler.proxy.balance import Candidate, Scored
from reconciler.proxy.board import Routes
from reconciler.proxy.breaker import Replica
from reconciler.proxy.local_loads import LocalLoads
from reconciler.proxy.peers.document import free_bytes
from reconciler.proxy.peers.load import ModelLoad
from reconciler.proxy.peers.peer import PeerLoads
from reconciler.proxy.route_table import Choice, Remote, RouteTable
from reconciler.proxy.visits import Visits
from reconciler.status import Status

HERE = None
"""The address of this node's own replica."""


def _any_number() -> int:
    return random.getrandbits(64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a request says about its place. `key`: see `affinity_key`; `tie`: see `rank`."""

    affinity: Affinity = Affinity.NONE
    key: bytes | None = None
    streams: bool = False
    tie: int = field(default_factory=_any_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """`every`: best first; `admitted`: those of them that the breakers let through."""

    wish: Wish
    every: tuple[Scored, ...]
    admitted: tuple[Scored, ...]

    def with_a_slot(self) -> Scored | None:
        """The best one that would work on a request at once."""
        return next((each for each in self.admitted if has_slot(each.candidate)), None)

    def with_a_slot_away(self) -> Scored | None:
        """The same, of other nodes."""
        away = (each for each in self.admitted if each.candidate.address is not HERE)
        return next((each for each in away if has_slot(each.candidate)), None)

    def at(self, address: Address | None) -> Scored | None:
        return next((each for each in self.admitted if each.candidate.address == address), None)


def has_slot(candidate: Candidate) -> bool:
    return candidate.slots is None or candidate.busy < candidate.slots


class Replicas:
    """What is known of each is forgotten with it."""

    def __init__(self, routes: Routes, local: LocalLoads, loads: PeerLoads, visits: Visits) -> None:
        self._routes = routes
        self._local = local
        self._loads = loads
        self._visits = visits
        visits.sent.follow(self._newest)
        self._serving: dict[Nonce, float | None] = {}
        self._of: RouteTable | None = None

    def ranking(
        self, choice: Choice, wish: Wish, *, tried: Collection[Address | None] = ()
    ) -> Ranking:
        now, table = time.monotonic(), self._routes.current()
        if table is not self._of:
            self._forget(table, now)
        found = [
            self._away(each, wish, now)
            for each in choice.route.serving
            if each.peer.address not in tried
        ]
        if choice.endpoint is not None and HERE not in tried:
            found.append(self._here(choice, table.status, wish, now))
        every = balance.rank(found, affinity=wish.affinity, key=wish.key, tie=wish.tie)
        return Ranking(wish=wish, every=every, admitted=balance.admitted(every))

    def heard(self, model: ModelName, address: Address, load: ModelLoad) -> None:
        """It came with an answer."""
        self._loads.heard(address, model, load)

    def failed(self, address: Address, because: str) -> None:
        self._loads.failed(address, because)

    def _here(self, choice: Choice, status: Status, wish: Wish, now: float) -> Candidate:
        own, endpoint = choice.route.here, choice.endpoint
        replica: Replica = (HERE, choice.name)
        assert own is not None
        assert endpoint is not None
        return Candidate(
            node=status.node,
            address=HERE,
            load=self._local.figures(choice.name),
            slots=own.max_in_flight,
            gpu_free_bytes=free_bytes(status.devices),
            first_byte_seconds=self._visits.first_bytes.seconds(replica, now, streams=wish.streams),
            serving_seconds=_since(self._serving.get(endpoint.nonce), now),
            breaker=self._visits.breakers.standing(replica, now),
            pause_seconds=self._visits.breakers.retry_seconds(replica, now),
        )

    def _away(self, remote: Remote, wish: Wish, now: float) -> Candidate:
        peer, model = remote.peer, remote.model
        assert peer.node is not None
        replica = (peer.address, model.name)
        return Candidate(
            node=peer.node,
            address=peer.address,
            load=self._loads.load(peer.address, model.name),
            unreported=self._visits.sent.unreported(replica),
            slots=model.max_in_flight,
            gpu_free_bytes=peer.gpu_free_bytes,
            first_byte_seconds=self._visits.first_bytes.seconds(replica, now, streams=wish.streams),
            serving_seconds=_since(model.serves_since, now),
            breaker=self._visits.breakers.standing(replica, now),
            pause_seconds=self._visits.breakers.retry_seconds(replica, now),
        )

    def _newest(self, replica: Replica) -> ModelLoad | None:
        """They may have come with an answer, or by the peer's follower."""
        address, model = replica
        return None if address is None else self._loads.load(address, model)

    def _forget(self, table: RouteTable, now: float) -> None:
        """What is gone; and of what has come, since when it serves."""
        first, self._of = self._of is None, table
        nonces = {each.endpoint.nonce for each in table.status.models if each.endpoint is not None}
        known = self._serving
        self._serving = {each: known.get(each, None if first else now) for each in nonces}
        away = [(each.peer, route.name) for route in table.routes for each in route.away]
        kept: set[Replica] = {(HERE, model.name) for model in table.status.models}
        reached = kept | {(peer.address, name) for peer, name in away if peer.reachable}
        kept.update((peer.address, name) for peer, name in away)
        self._visits.keep_only(kept, reached=reached)


def _since(began: float | None, now: float) -> float | None:
    return None if began is None else now - began
