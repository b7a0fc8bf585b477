"""Requests with the same key go to the same replica, as long as it has no more than its share."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import Affinity
from reconciler.proxy.balance import LOAD_BOUND, Candidate, rank
from reconciler.proxy.breaker import Standing
from reconciler.proxy.peers.load import ModelLoad
from tests.proxy.ranking import candidate, names

KEYS = [number.to_bytes(8, "big") for number in range(2000)]
FLEET = [candidate(f"node-{number}") for number in range(5)]


def _first(fleet: list[Candidate], key: bytes, *, tie: int = 0) -> str:
    return names(rank(fleet, affinity=Affinity.SESSION, key=key, tie=tie))[0]


@given(key=st.binary(max_size=64), tie=st.integers(0, 2**63 - 1), here=st.integers(0, 4))
def test_a_key_leads_to_the_same_replica_from_every_node(key: bytes, tie: int, here: int) -> None:
    own = [replace(each, address=None) if at == here else each for at, each in enumerate(FLEET)]
    assert _first(own, key, tie=tie) == _first(FLEET, key)


def test_keys_are_spread_evenly() -> None:
    shares = Counter(_first(FLEET, key) for key in KEYS)
    assert min(shares.values()) > 0.8 * len(KEYS) / len(FLEET)
    assert max(shares.values()) < 1.2 * len(KEYS) / len(FLEET)


def test_more_slots_get_more_keys() -> None:
    shares = Counter(_first([candidate("large", slots=24), FLEET[0]], key) for key in KEYS)
    assert 0.7 < shares["large"] / len(KEYS) < 0.8


def test_a_replica_that_goes_or_comes_moves_only_its_own_keys() -> None:
    for gone in FLEET:
        left = [each for each in FLEET if each is not gone]
        for key in KEYS[:500]:
            before = _first(FLEET, key)
            assert before in (gone.node, _first(left, key))


def test_one_that_fails_hands_over_its_keys_and_gets_them_back() -> None:
    open_ = [replace(FLEET[0], breaker=Standing.OPEN, pause_seconds=1.0), *FLEET[1:]]
    for key in KEYS[:500]:
        if _first(FLEET, key) != FLEET[0].node:
            assert _first(open_, key) == _first(FLEET, key)
        else:
            assert _first(open_, key) == _first(FLEET[1:], key)


@given(
    key=st.binary(min_size=8, max_size=8),
    others=st.lists(st.integers(0, 30), min_size=5, max_size=5),
    count=st.integers(1, 80),
)
def test_a_hot_key_stays_within_the_bound_and_spills_in_its_own_order(
    key: bytes, others: list[int], count: int
) -> None:
    fleet = [
        replace(each, load=ModelLoad(in_flight=n)) for each, n in zip(FLEET, others, strict=True)
    ]
    order = names(rank(FLEET, affinity=Affinity.PREFIX, key=key))
    for _ in range(count):
        first = _first(fleet, key)
        total = sum(each.busy for each in fleet) + 1
        most = max(math.ceil(LOAD_BOUND * total / len(fleet)), 4)
        has_room = {each.node for each in fleet if each.busy < most}
        assert first == next(node for node in order if node in has_room)
        fleet = [
            replace(each, unreported=each.unreported + 1) if each.node == first else each
            for each in fleet
        ]


def test_a_queue_within_an_engine_is_a_share_used_up_and_moves_no_other_keys() -> None:
    queued = replace(FLEET[0], load=ModelLoad(in_flight=3, queued=1))
    assert FLEET[0].node not in {_first([queued, *FLEET[1:]], key) for key in KEYS[:500]}
    busier = [replace(each, load=ModelLoad(in_flight=20)) for each in FLEET[1:]]
    alike = [replace(each, load=ModelLoad(in_flight=20)) for each in FLEET]
    for key in KEYS[:500]:
        assert _first([queued, *busier], key) == _first(alike, key)


def test_a_full_kv_cache_passes_the_key_on() -> None:
    key = KEYS[0]
    order = names(rank(FLEET, affinity=Affinity.PREFIX, key=key))
    full = [
        replace(each, load=ModelLoad(kv_usage=0.96)) if each.node == order[0] else each
        for each in FLEET
    ]
    assert _first(full, key) == order[1]


def test_a_fresh_replica_takes_up_its_keys_one_after_the_other() -> None:
    before = {key: _first(FLEET[1:], key) for key in KEYS}
    taken: list[set[bytes]] = []
    for seconds in (0, 10, 20, 30):
        fleet = [replace(FLEET[0], serving_seconds=float(seconds)), *FLEET[1:]]
        now = {key: _first(fleet, key) for key in KEYS}
        moved = {key for key in KEYS if now[key] != before[key]}
        assert {now[key] for key in moved} == {FLEET[0].node}
        taken.append(moved)
    assert all(earlier < later for earlier, later in pairwise(taken))
    assert len(taken[0]) < 0.2 * len(taken[-1])


def test_without_a_key_it_is_as_without_an_affinity() -> None:
    fleet = [candidate("a", in_flight=4), candidate("b")]
    assert rank(fleet, affinity=Affinity.SESSION, key=None, tie=7) == rank(fleet, tie=7)
    assert rank(fleet, affinity=Affinity.NONE, key=b"k", tie=7) == rank(fleet, tie=7)
