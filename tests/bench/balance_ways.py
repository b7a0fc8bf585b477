"""The ways to choose a replica that are compared: each node's own, with what it knows."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from reconciler.plan.desired import Affinity
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.peering import Address
from reconciler.proxy import balance
from reconciler.proxy.balance import Candidate, Scored
from reconciler.proxy.breaker import Breakers, Outcome
from reconciler.proxy.breaker import Replica as Subject
from reconciler.proxy.first_bytes import FirstBytes
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.replicas import has_slot
from reconciler.proxy.sent import Sent
from tests.bench.balance_world import Ask, Clock, Replica

MODEL = ModelName("m")


class Underway(Protocol):
    """One request that was sent to a replica."""

    def first_byte(self) -> None: ...
    def ended(self) -> None: ...
    def failed(self) -> None: ...


class Way(Protocol):
    """At one node."""

    def choose(self, ask: Ask, present: Sequence[int]) -> int | None:
        """One of those that are present; None: 503."""

    def sent(self, number: int) -> Underway: ...

    def look(self) -> None:
        """The other nodes' figures are looked at, as every so many seconds."""


@dataclass(slots=True)
class View:
    """What a node knows of the replicas: of its own one, `here`, what is; of the others what they
    told, and what it sent there since."""

    clock: Clock
    replicas: Sequence[Replica]
    here: int
    told: dict[int, ModelLoad] = field(default_factory=dict)
    ledger: Sent = field(default_factory=Sent)

    def __post_init__(self) -> None:
        self.ledger.follow(lambda subject: self.told.get(subject[0].port) if subject[0] else None)

    def look(self) -> None:
        for number in range(len(self.replicas)):
            self.hear(number)

    def hear(self, number: int) -> None:
        self.told[number] = load_of(self.replicas[number])

    def load(self, number: int) -> ModelLoad:
        if number == self.here:
            return load_of(self.replicas[number])
        return self.told.get(number, IDLE)

    def unreported(self, number: int) -> int:
        return 0 if number == self.here else self.ledger.unreported(self.subject(number))

    def busy(self, number: int) -> int:
        load = self.load(number)
        return max(0, load.in_flight + load.waiting + self.unreported(number))

    def subject(self, number: int) -> Subject:
        return (None if number == self.here else Address(host="replica", port=number), MODEL)


def load_of(replica: Replica) -> ModelLoad:
    return ModelLoad(in_flight=replica.in_flight, waiting=replica.waiting)


class _Plain:
    """One that only keeps the figures."""

    def __init__(self, view: View, random_: random.Random) -> None:
        self.view = view
        self.random = random_
        self.connections: Counter[int] = Counter()

    def look(self) -> None:
        self.view.look()

    def sent(self, number: int) -> Underway:
        self.view.ledger.began(self.view.subject(number))
        self.connections[number] += 1
        return _Counted(self, number)


@dataclass(slots=True)
class _Counted:
    way: _Plain
    number: int

    def first_byte(self) -> None:
        self.way.view.hear(self.number)

    def ended(self) -> None:
        self.way.view.ledger.ended(self.way.view.subject(self.number))
        self.way.connections[self.number] -= 1

    def failed(self) -> None:
        self.ended()


class RoundRobin(_Plain):
    def __init__(self, view: View, random_: random.Random) -> None:
        super().__init__(view, random_)
        self._turns = itertools.count()

    def choose(self, ask: Ask, present: Sequence[int]) -> int | None:
        return present[next(self._turns) % len(present)]


class Random(_Plain):
    def choose(self, ask: Ask, present: Sequence[int]) -> int | None:
        return self.random.choice(present)


class LeastConnections(_Plain):
    """By its own connections, as nginx and Envoy do; ties at random."""

    def choose(self, ask: Ask, present: Sequence[int]) -> int | None:
        return min(present, key=lambda each: (self.connections[each], self.random.random()))


class TwoChoices(_Plain):
    """The less busy one of two, by the same figures as ours."""

    def choose(self, ask: Ask, present: Sequence[int]) -> int | None:
        two = self.random.sample(present, min(2, len(present)))
        return min(two, key=self.view.busy)


class Ours:
    def __init__(
        self, view: View, random_: random.Random, affinity: Affinity = Affinity.NONE
    ) -> None:
        self._view = view
        self._random = random_
        self._affinity = affinity
        self._first_bytes = FirstBytes()
        self._breakers = Breakers()
        self._since: dict[int, float | None] = {}

    def look(self) -> None:
        self._view.look()

    def choose(self, ask: Ask, present: Sequence[int]) -> int | None:
        now = self._view.clock.now
        for number in present:
            self._since.setdefault(number, now if now > 1.0 else None)
        ranked = self.rank(
            [self._candidate(number, now) for number in present],
            key=ask.key.to_bytes(8, "big"),
            tie=self._random.getrandbits(64),
        )
        every = balance.admitted(ranked)
        with_a_slot = (each for each in every if has_slot(each.candidate))
        best = next(with_a_slot, next(iter(every), None))
        return None if best is None else int(best.candidate.node)

    def rank(self, candidates: Sequence[Candidate], *, key: bytes, tie: int) -> tuple[Scored, ...]:
        return balance.rank(candidates, affinity=self._affinity, key=key, tie=tie)

    def _candidate(self, number: int, now: float) -> Candidate:
        view, subject = self._view, self._view.subject(number)
        since = self._since[number]
        return Candidate(
            node=NodeName(str(number)),
            address=subject[0],
            load=view.load(number),
            unreported=view.unreported(number),
            slots=view.replicas[number].shape.slots,
            first_byte_seconds=self._first_bytes.seconds(subject, now, streams=True),
            serving_seconds=None if since is None else now - since,
            breaker=self._breakers.standing(subject, now),
            pause_seconds=self._breakers.retry_seconds(subject, now),
        )

    def sent(self, number: int) -> Underway:
        view, subject = self._view, self._view.subject(number)
        attempt = self._breakers.began(subject, view.clock.now)
        waiting = self._first_bytes.began(subject, view.clock.now, streams=True)
        view.ledger.began(subject)

        def first_byte() -> None:
            view.hear(number)
            self._first_bytes.came(subject, waiting, view.clock.now, streams=True)
            self._breakers.ended(subject, attempt, Outcome.SERVED, view.clock.now)

        def failed() -> None:
            view.ledger.ended(subject)
            self._first_bytes.gone(subject, waiting, streams=True)
            self._breakers.ended(subject, attempt, Outcome.FAILED, view.clock.now)

        return _Watched(first_byte, lambda: view.ledger.ended(subject), failed)


@dataclass(slots=True)
class _Watched:
    first_byte: Callable[[], None]
    ended: Callable[[], None]
    failed: Callable[[], None]


class Hashed(_Plain):
    """Always the key's own replica, as plain consistent hashing has it."""

    def choose(self, ask: Ask, present: Sequence[int]) -> int | None:
        return max(present, key=lambda each: random.Random(f"{ask.key}/{each}").random())


Making = Callable[[View, random.Random], Way]

OURS = "the agent"
WAYS: dict[str, Making] = {
    OURS: Ours,
    "round robin": RoundRobin,
    "random": Random,
    "least connections": LeastConnections,
    "two random choices": TwoChoices,
}
WITH_AFFINITY = "the agent, `affinity: prefix`"
KEYED_WAYS: dict[str, Making] = {
    WITH_AFFINITY: partial(Ours, affinity=Affinity.PREFIX),
    "the agent, without an affinity": Ours,
    "each key on one replica": Hashed,
    "round robin": RoundRobin,
}
