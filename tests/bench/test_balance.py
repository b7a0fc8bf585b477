"""The simulated ways to balance, and what ours has to be: in simulated time, so always the same."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from reconciler.proxy.balance import Candidate, Scored, explain, rank
from tests.bench.balance import (
    ALIKE_REQUESTS,
    FAILING,
    ISSUE,
    KEYED,
    SCENARIOS,
    Scenario,
    compared,
    figures,
    measure,
    run,
    shortened,
)
from tests.bench.balance_table import balance_tables, long_tables
from tests.bench.balance_ways import KEYED_WAYS, OURS, WAYS, WITH_AFFINITY, Ours
from tests.bench.balance_world import Arrivals, Clock, Replica, Request, Shape, Spell
from tests.proxy.ranking import of_explanation


def _name(scenario: Scenario) -> str:
    return scenario.name


@pytest.mark.parametrize("scenario", ISSUE, ids=_name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_one_slow_replica_p95_is_half_of_round_robins(scenario: Scenario, seed: int) -> None:
    ours = figures(run(scenario, Ours, seed=seed))
    theirs = figures(run(scenario, WAYS["round robin"], seed=seed))
    assert ours.p95 <= theirs.p95 / 2
    assert ours.errors <= 0.001  # the longest of all, on the slow one


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_it_is_so_too_where_requests_are_alike_and_slots_are_few(slots: int) -> None:
    """There one that is four times slower is p95 as soon as it gets a twentieth, but for queues."""
    shapes = tuple(replace(each, slots=slots, batch=slots) for each in ALIKE_REQUESTS.shapes)
    rate = 0.3 * 2.25 * slots
    arrivals = replace(ALIKE_REQUESTS.arrivals, rate=rate, seconds=1000 / rate)
    scenario = replace(ALIKE_REQUESTS, shapes=shapes, arrivals=arrivals)
    ours, theirs = (figures(run(scenario, way)) for way in (Ours, WAYS["round robin"]))
    assert ours.p95 <= theirs.p95 / 2


@pytest.mark.parametrize("scenario", SCENARIOS, ids=_name)
def test_ours_is_nowhere_much_worse_than_the_best(scenario: Scenario) -> None:
    found = compared(scenario, WAYS)
    ours = found.pop(OURS)
    assert ours.p50 <= 1.1 * min(each.p50 for each in found.values())
    assert ours.p95 <= 1.1 * min(each.p95 for each in found.values())
    assert ours.errors <= min(each.errors for each in found.values())


def test_where_all_are_full_a_slow_replica_gets_about_a_quarter_of_a_quick_ones_share() -> None:
    full = replace(ISSUE[-1], arrivals=Arrivals(rate=9.9))
    quick, also_quick, slow = figures(run(full, Ours)).shares
    assert 0.2 < 2 * slow / (quick + also_quick) < 0.3


def test_a_replica_that_fails_at_once_draws_no_requests() -> None:
    """By its connections it is always the idlest: that is how it becomes a black hole."""
    ours, least = figures(run(FAILING, Ours)), figures(run(FAILING, WAYS["least connections"]))
    assert ours.errors < 0.01 < 0.1 < least.errors
    assert ours.shares[2] > 0.2  # it is taken back


def test_an_affinity_finds_prefixes_without_loading_one_replica() -> None:
    found = compared(KEYED, KEYED_WAYS)
    ours, without = found[WITH_AFFINITY], found["the agent, without an affinity"]
    one_replica = found["each key on one replica"]
    assert ours.hits > without.hits + 0.1
    assert ours.hits > one_replica.hits - 0.05
    assert max(ours.shares) < max(one_replica.shares) - 0.05
    assert ours.p95 < min(without.p95, one_replica.p95)


class Explained(Ours):
    """Each choice is made again from its explanation, through JSON."""

    def rank(self, candidates: Sequence[Candidate], *, key: bytes, tie: int) -> tuple[Scored, ...]:
        ranked = super().rank(candidates, key=key, tie=tie)
        told: dict[str, Any] = json.loads(json.dumps(explain(ranked, tie=tie)))
        assert rank(of_explanation(told), tie=told["tie"]) == ranked
        return ranked


def test_every_choice_of_a_run_is_made_again_from_its_explanation() -> None:
    tally = run(ISSUE[3], Explained)
    assert tally.served == run(ISSUE[3], Ours).served
    assert sum(tally.served) > 1000


def test_a_run_is_the_same_each_time_and_all_ways_get_the_same_requests() -> None:
    short = [shortened(each) for each in SCENARIOS]
    for scenario in short:
        once, again = compared(scenario, WAYS), compared(scenario, WAYS)
        assert once == again
    assert len({sum(run(short[0], way).served) for way in WAYS.values()}) == 1


def test_the_tables_hold_every_scenario_and_way() -> None:
    result = measure(quick=True)
    brief, long = "\n".join(balance_tables(result)), "\n".join(long_tables(result))
    for name in (*result.plain, *result.keyed):
        assert name in brief
        assert name in long
    assert all(way in brief for way in (*WAYS, *KEYED_WAYS))


def _ended(shape: Shape, *works: float) -> list[float]:
    """When requests end that come at once, the first byte half way."""
    clock, ended = Clock(), []
    replica = Replica(clock, shape)
    ask = next(Arrivals(rate=1.0).asks(1))
    for work in works:
        request = Request(
            ask=ask,
            first_byte=lambda: None,
            ended=lambda: ended.append(round(clock.now, 6)),
            prefill=work / 2,
            work=work,
        )
        replica.take(request)
    clock.run()
    return ended


@pytest.mark.parametrize(
    ("shape", "works", "ends"),
    [
        (Shape(), (1.0, 2.0), [1.0, 2.0]),
        (Shape(speed=0.5), (1.0,), [2.0]),
        (Shape(slots=1), (1.0, 2.0), [1.0, 3.0]),
        (Shape(batch=1), (1.0, 1.0), [2.0, 2.0]),
        (Shape(batch=1), (1.0, 2.0), [2.0, 3.0]),
        (Shape(spells=(Spell(begin=0.5, end=9.0, is_="stalled"),)), (1.0,), [9.5]),
    ],
)
def test_simulated_replicas_take_the_time_that_they_should(
    shape: Shape, works: tuple[float, ...], ends: list[float]
) -> None:
    assert _ended(shape, *works) == ends
