"""Which replica a request goes to: the order of the figures, and that it is an order."""

import json
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import Affinity
from reconciler.proxy.balance import Candidate, admitted, explain, rank
from reconciler.proxy.breaker import Standing
from reconciler.proxy.peers.load import ModelLoad
from tests.proxy.ranking import candidate, fleets, names, of_explanation

_ties = st.integers(min_value=-(2**63), max_value=2**63 - 1)
_keys = st.none() | st.binary(min_size=8, max_size=8)


def _load(**more: float) -> ModelLoad:
    return ModelLoad(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (candidate("b", in_flight=1), candidate("a", in_flight=2)),
        (candidate("b", in_flight=3, slots=16), candidate("a", in_flight=2, slots=4)),
        (candidate("b", in_flight=1), candidate("a", load=_load(waiting=6))),
        (candidate("b", in_flight=1), candidate("a", unreported=6)),
        (candidate("b", in_flight=5, unreported=-5), candidate("a", in_flight=1)),
        (candidate("b", in_flight=30, slots=None), candidate("a", in_flight=31, slots=None)),
        (candidate("b", in_flight=6), candidate("a", load=_load(in_flight=6, queued=5))),
        (candidate("b", in_flight=1), candidate("a", load=_load(kv_usage=0.97))),
        (candidate("b", load=_load(kv_usage=0.85)), candidate("a", load=_load(kv_usage=0.92))),
        (candidate("b", in_flight=1), candidate("a", gpu_free_bytes=2**20)),
        (candidate("b", first_byte_seconds=0.2), candidate("a", first_byte_seconds=0.4)),
        (candidate("b"), candidate("a", here=True, first_byte_seconds=0.4, in_flight=1)),
        (candidate("b", here=True), candidate("a")),
        (candidate("b", in_flight=90), candidate("a", breaker=Standing.OPEN)),
        (candidate("b", in_flight=90), candidate("a", breaker=Standing.PROBING)),
        (
            candidate("b", in_flight=90, breaker=Standing.OPEN, pause_seconds=1.0),
            candidate("a", breaker=Standing.OPEN, pause_seconds=2.0),
        ),
    ],
)
def test_one_figure_decides(better: Candidate, worse: Candidate) -> None:
    for tie in range(8):
        assert names(rank([worse, better], tie=tie)) == ["b", "a"]


@pytest.mark.parametrize(("in_flight", "first"), [(0, "quick"), (2, "quick"), (4, "slow")])
def test_a_request_goes_where_it_is_done_first(in_flight: int, first: str) -> None:
    slow = candidate("slow", first_byte_seconds=4.0)
    quick = candidate("quick", in_flight=in_flight, first_byte_seconds=1.0)
    assert names(rank([slow, quick]))[0] == first


def test_one_whose_time_to_first_byte_is_unknown_gets_to_be_known() -> None:
    known, unknown = candidate("a", in_flight=1, first_byte_seconds=0.1), candidate("b")
    assert names(rank([known, unknown])) == ["b", "a"]


def test_small_differences_in_the_time_to_first_byte_are_noise() -> None:
    fleet = [candidate("a", first_byte_seconds=0.10), candidate("b", first_byte_seconds=0.12)]
    firsts = Counter(names(rank(fleet, tie=tie))[0] for tie in range(1000))
    assert min(firsts.values()) > 400


@given(count=st.integers(min_value=2, max_value=5), start=st.integers(0, 2**62))
def test_equal_replicas_share(count: int, start: int) -> None:
    fleet = [candidate(f"node-{number}") for number in range(count)]
    firsts = Counter(names(rank(fleet, tie=start + tie))[0] for tie in range(600))
    assert min(firsts.values()) > 300 / count
    assert max(firsts.values()) < 1200 / count


@pytest.mark.parametrize(
    ("serving", "least", "most"), [(0, 10, 90), (15, 200, 300), (30, 400, 600)]
)
def test_a_fresh_replicas_share_grows(serving: float, least: int, most: int) -> None:
    fleet = [candidate("old"), candidate("new", serving_seconds=serving)]
    firsts = Counter(names(rank(fleet, tie=tie))[0] for tie in range(1000))
    assert least <= firsts["new"] <= most


def test_a_fresh_replica_helps_at_once_where_the_others_have_no_slot_left() -> None:
    fleet = [candidate("old", in_flight=16), candidate("new", serving_seconds=0)]
    assert {names(rank(fleet, tie=tie))[0] for tie in range(100)} == {"new"}


@given(fleet=fleets(), tie=_ties, key=_keys, affinity=st.sampled_from(Affinity), data=st.data())
def test_the_order_does_not_depend_on_that_of_the_candidates(
    fleet: list[Candidate], tie: int, key: bytes | None, affinity: Affinity, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(fleet))
    ranked = rank(fleet, tie=tie, key=key, affinity=affinity)
    assert ranked == rank(shuffled, tie=tie, key=key, affinity=affinity)
    assert sorted(names(ranked)) == sorted(each.node for each in fleet)
    assert [each.score for each in ranked] == sorted(each.score for each in ranked)


@given(fleet=fleets(), tie=_ties, key=_keys, affinity=st.sampled_from(Affinity))
def test_a_choice_is_made_again_from_its_explanation(
    fleet: list[Candidate], tie: int, key: bytes | None, affinity: Affinity
) -> None:
    ranked = rank(fleet, tie=tie, key=key, affinity=affinity)
    told = json.loads(json.dumps(explain(ranked, tie=tie, key=key, affinity=affinity)))
    again = rank(
        of_explanation(told),
        tie=told["tie"],
        key=None if told["key"] is None else bytes.fromhex(told["key"]),
        affinity=Affinity(told["affinity"]),
    )
    assert again == ranked
    assert [list(each.score) for each in again] == [each["score"] for each in told["candidates"]]
    assert all(each["why"] for each in told["candidates"])


@given(fleet=fleets(), tie=_ties)
def test_more_load_never_makes_a_replica_better(fleet: list[Candidate], tie: int) -> None:
    ranked = rank(fleet, tie=tie)
    best = ranked[0].candidate
    for busier in range(len(fleet)):
        if (other := fleet[busier]) != best:
            figures = {name: getattr(other, name) for name in Candidate.__slots__}
            more = Candidate(**{**figures, "unreported": other.unreported + 5})
            changed = [more if each == other else each for each in fleet]
            assert rank(changed, tie=tie)[0].candidate == best


def _open(name: str, pause: float = 1.0) -> Candidate:
    return candidate(name, breaker=Standing.OPEN, pause_seconds=pause)


def _probing(name: str) -> Candidate:
    return candidate(name, breaker=Standing.PROBING)


def test_only_closed_breakers_and_due_probes_get_requests() -> None:
    fleet = [
        _open("a"),
        candidate("b", in_flight=5),
        candidate("c", breaker=Standing.HALF_OPEN),
        _probing("d"),
    ]
    assert names(admitted(rank(fleet))) == ["c", "b"]


def test_with_all_breakers_open_one_request_at_a_time_goes_to_the_least_bad() -> None:
    fleet = [_open("a", 9.0), _open("b")]
    assert names(admitted(rank(fleet))) == ["b"]
    assert admitted(rank([fleet[0], _probing("b")])) == ()


@pytest.mark.parametrize("standing", Standing)
def test_the_only_replica_is_never_barred(standing: Standing) -> None:
    assert names(admitted(rank([candidate("a", breaker=standing)]))) == ["a"]


def test_nobody_is_chosen_from_nobody() -> None:
    assert rank([]) == ()
    assert admitted(()) == ()


def test_what_is_unknown_of_some_leaves_an_order_of_all() -> None:
    fleet = [
        candidate("a", first_byte_seconds=1.0),
        candidate("b"),
        candidate("c", load=_load(kv_usage=0.9)),
        candidate("d", gpu_free_bytes=0, slots=None),
        candidate("e", first_byte_seconds=0.0, serving_seconds=3.0),
    ]
    orders = {tuple(names(rank(each, tie=1))) for each in permutations(fleet)}
    assert len(orders) == 1
