"""`python -m tests.bench.balance`: where requests go, in simulated time, ours against other ways.

Seeded, so that every run gives the same figures; all ways get the same requests.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tests.bench.balance_ways import KEYED_WAYS, WAYS, Making, Underway, View
from tests.bench.balance_world import (
    GIVE_UP_SECONDS,
    Arrivals,
    Ask,
    Clock,
    Replica,
    Request,
    Shape,
    Spell,
    Tally,
)

LOOK_SECONDS = 2.0
"""So old are figures of other nodes where no answer brought newer ones."""
SEED = 20261201


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    shapes: tuple[Shape, ...]
    arrivals: Arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one way. Seconds from the request to the end of its answer. `shares`: of the requests,
    that each replica got; `errors`, `hits`: of all; a hit found its prefix in a cache."""

    p50: float
    p95: float
    p99: float
    shares: tuple[float, ...]
    errors: float
    hits: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceResult:
    """By scenario and way. `keyed`: requests that belong together."""

    requests: int
    plain: Mapping[str, Mapping[str, Figures]]
    keyed: Mapping[str, Mapping[str, Figures]]


def measure(*, quick: bool = False) -> BalanceResult:
    scenarios = [shortened(each) for each in SCENARIOS] if quick else SCENARIOS
    keyed = [shortened(KEYED)] if quick else [KEYED]
    return BalanceResult(
        requests=sum(len(list(each.arrivals.asks(SEED))) for each in scenarios),
        plain={each.name: compared(each, WAYS) for each in scenarios},
        keyed={each.name: compared(each, KEYED_WAYS) for each in keyed},
    )


def compared(
    scenario: Scenario, ways: Mapping[str, Making], *, seed: int = SEED
) -> dict[str, Figures]:
    return {name: figures(run(scenario, making, seed=seed)) for name, making in ways.items()}


def run(scenario: Scenario, making: Making, *, seed: int = SEED) -> Tally:
    """One way, from the first request to the end of the last."""
    return _Run(scenario, making, seed).tally()


def figures(tally: Tally) -> Figures:
    sent = sum(tally.served)
    return Figures(
        p50=tally.percentile(0.5),
        p95=tally.percentile(0.95),
        p99=tally.percentile(0.99),
        shares=tuple(each / sent for each in tally.served),
        errors=tally.errors / sent,
        hits=tally.hits / sent,
    )


def shortened(scenario: Scenario) -> Scenario:
    return replace(scenario, arrivals=replace(scenario.arrivals, seconds=10.0))


class _Run:
    def __init__(self, scenario: Scenario, making: Making, seed: int) -> None:
        self._clock = Clock()
        self._replicas = [Replica(self._clock, shape) for shape in scenario.shapes]
        self._ways = [
            making(View(self._clock, self._replicas, entry), random.Random(seed + entry))
            for entry in range(scenario.arrivals.entries)
        ]
        self._tally = Tally(served=[0] * len(self._replicas))
        for ask in scenario.arrivals.asks(seed):
            self._clock.at(ask.at, partial(self._take, ask))
        looks = int(scenario.arrivals.seconds / LOOK_SECONDS)
        for entry, way in enumerate(self._ways):
            offset = LOOK_SECONDS * entry / len(self._ways)
            for number in range(looks):
                self._clock.at(number * LOOK_SECONDS + offset, way.look)

    def tally(self) -> Tally:
        self._clock.run()
        self._tally.hits = sum(replica.hits for replica in self._replicas)
        return self._tally

    def _take(self, ask: Ask) -> None:
        now, way = self._clock.now, self._ways[ask.entry]
        shapes = [replica.shape for replica in self._replicas]
        present = [number for number, each in enumerate(shapes) if not each.is_("absent", now)]
        number = way.choose(ask, present)
        if number is None:
            self._tally.errors += 1
            return
        self._tally.served[number] += 1
        underway = way.sent(number)
        if shapes[number].is_("failing", now):
            self._tally.errors += 1
            underway.failed()
            return
        request = Request(
            ask=ask,
            first_byte=underway.first_byte,
            ended=partial(self._ended, ask, underway),
            prefill=ask.prefill,
            work=ask.work,
        )
        self._replicas[number].take(request)

    def _ended(self, ask: Ask, underway: Underway) -> None:
        underway.ended()
        took = self._clock.now - ask.at
        self._tally.latencies.append(took)
        self._tally.errors += took > GIVE_UP_SECONDS


def _shape(speed: float = 1.0, *spells: Spell, prefixes: int = 0) -> Shape:
    return Shape(speed=speed, slots=8, batch=4, spells=spells, prefixes=prefixes)


def _fleet(*speeds: float) -> tuple[Shape, ...]:
    return tuple(map(_shape, speeds))


_SLOW = _fleet(1, 1, 0.25)
_ALIKE = _fleet(1, 1, 1)
_SIX = _fleet(1, 1, 1, 1, 1, 0.25)
_STALLS = _shape(
    1,
    Spell(begin=60, end=80, is_="stalled"),
    Spell(begin=140, end=160, is_="stalled"),
)
_FAILS = _shape(1, Spell(begin=60, end=120, is_="failing"))
_COMES = _shape(1, Spell(begin=0, end=60, is_="absent"))

ISSUE = tuple(
    Scenario(
        name=f"one of three 4 × slower, {load:.0%} load",
        shapes=_SLOW,
        arrivals=Arrivals(rate=9 * load, seconds=240 / load),
    )
    for load in (0.1, 0.3, 0.5, 0.7, 0.9)
)
ALIKE_REQUESTS = Scenario(
    name="one of three 4 × slower, 30%, requests almost alike",
    shapes=_SLOW,
    arrivals=Arrivals(rate=2.7, seconds=800.0, spread=0.1),
)
BURSTS = Scenario(
    name="one of three 4 × slower, 60%, in bursts",
    shapes=_SLOW,
    arrivals=Arrivals(rate=5.4, burst=4),
)
FAILING = Scenario(
    name="three alike, one fails for 60 s, 50%",
    shapes=(*_fleet(1, 1), _FAILS),
    arrivals=Arrivals(rate=6),
)
SCENARIOS = (
    *ISSUE,
    ALIKE_REQUESTS,
    BURSTS,
    Scenario(name="three alike, 70%", shapes=_ALIKE, arrivals=Arrivals(rate=8.4)),
    Scenario(name="three alike, 50%, in bursts", shapes=_ALIKE, arrivals=Arrivals(rate=6, burst=4)),
    Scenario(
        name="three alike, one stalls twice for 20 s, 50%",
        shapes=(*_fleet(1, 1), _STALLS),
        arrivals=Arrivals(rate=6),
    ),
    FAILING,
    Scenario(
        name="three alike, one comes after 60 s, 50%",
        shapes=(*_fleet(1, 1), _COMES),
        arrivals=Arrivals(rate=6),
    ),
    Scenario(
        name="six nodes that all take requests, one 4 × slower, 60%",
        shapes=_SIX,
        arrivals=Arrivals(rate=12.6, entries=6),
    ),
    Scenario(
        name="the same, in bursts",
        shapes=_SIX,
        arrivals=Arrivals(rate=12.6, entries=6, burst=4),
    ),
)
KEYED = Scenario(
    name="four alike, half of the work is the prompt's beginning, 60%",
    shapes=(_shape(prefixes=40),) * 4,
    arrivals=Arrivals(rate=9.6, entries=4, keys=200, prefill=0.5, spread=0.7),
)

if __name__ == "__main__":
    from tests.bench.balance_table import long_tables

    print("\n".join(long_tables(measure())))
