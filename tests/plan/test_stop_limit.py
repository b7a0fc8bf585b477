"""A revision that would stop many of the models that run must be confirmed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import Desired, WaitingRevision
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.rails import confirmed_by_name, excess
from reconciler.plan.stop_limit import DEFAULT_STOP_LIMIT, NO_STOP_LIMIT, StopLimit
from tests.plan.world import desired_model

LIMITS = st.one_of(
    st.just(NO_STOP_LIMIT),
    st.builds(StopLimit, percent=st.integers(0, 100)),
    st.builds(StopLimit, count=st.integers(0, 10)),
)


def wanting(names: str, *, limit: StopLimit | None = None, off: str = "") -> Desired:
    models = tuple(desired_model(name, enabled=name not in off) for name in sorted(names))
    limits = (limit,) if limit is not None else ()
    return Desired(node=NodeName("n"), revision="r2", models=models, stop_limits=limits)


def names(letters: str) -> set[ModelName]:
    return set(map(ModelName, letters))


@pytest.mark.parametrize(
    ("running", "wanted", "stops"),
    [
        ("abcdefgh", "abc", "defgh"),
        ("abcdefgh", "abcd", ""),  # just the half
        ("abcd", "a", "bcd"),
        ("abcd", "", "abcd"),
        ("abc", "", ""),  # a small node
        ("", "abcdefgh", ""),  # the first revision of a fresh node
        ("abcd", "axyz", "bcd"),  # what starts does not make up for what stops
    ],
)
def test_more_than_half_of_four_or_more_wait(running: str, wanted: str, stops: str) -> None:
    waiting = excess(wanting(wanted), names(running))

    assert "".join(waiting.stops if waiting else ()) == stops


def test_disabled_models_count_as_stopped() -> None:
    waiting = excess(wanting("abcd", off="abc"), names("abcd"))

    assert waiting is not None
    assert waiting.reason == (
        "revision r2 waits for confirmation: it would stop 3 of 4 running models (a, b, c), and "
        "the stop limit is 50%; `xgen-model reconcile --confirm r2` lets it"
    )


def test_a_count_holds_on_small_nodes_too() -> None:
    assert excess(wanting("a", limit=StopLimit(count=0)), names("ab")) is not None
    assert excess(wanting("a", limit=StopLimit(count=1)), names("ab")) is None


def test_the_manifests_own_limit_is_taken_before_the_nodes() -> None:
    limit = StopLimit(percent=10)

    assert excess(wanting("abc"), names("abcd"), limit) is not None
    assert excess(wanting("", limit=NO_STOP_LIMIT), names("abcd"), limit) is None


def test_what_is_on_its_way_out_is_counted_no_more() -> None:
    """It waits for a window, say; another revision has it on its account."""
    before = wanting("abcd")

    assert excess(wanting("abc"), names("abcdefgh"), before=before) is None
    waiting = excess(wanting("a"), names("abcdefgh"), before=before)
    assert waiting is not None
    assert (waiting.stops, waiting.running) == (("b", "c", "d"), 4)


def test_a_limit_does_not_grow_by_being_left_out() -> None:
    before = wanting("abcd", limit=StopLimit(percent=10))
    loose = wanting("abcd", limit=NO_STOP_LIMIT)

    assert excess(wanting("abc"), names("abcd"), before=before) is not None
    assert excess(wanting("a"), names("abcd"), before=loose) is not None


@given(limit=LIMITS, running=st.sets(st.sampled_from("abcdefghij")), data=st.data())
def test_what_was_let_through_goes_on_to_its_end(
    limit: StopLimit, running: set[str], data: st.DataObject
) -> None:
    """One stop after the other, the rest is never too many."""
    wanted = "".join(data.draw(st.sets(st.sampled_from(sorted(running))))) if running else ""
    left = names("".join(running))
    if excess(wanting(wanted, limit=limit), left) is not None:
        return
    for name in sorted(left - names(wanted)):
        left.remove(name)
        assert excess(wanting(wanted, limit=limit), left) is None


def test_the_default_is_half() -> None:
    assert str(DEFAULT_STOP_LIMIT) == "50%"


@pytest.mark.parametrize("looser", [NO_STOP_LIMIT, StopLimit(percent=100), None])
def test_a_manifest_makes_no_room_for_itself(looser: StopLimit | None) -> None:
    """`stop_limit: none` in the very commit that deletes lifted the rail."""
    before = wanting("abcd", limit=StopLimit(count=0))
    waiting = excess(wanting("abc", limit=looser), names("abcd"), before=before)
    assert waiting is not None
    assert waiting.limit == StopLimit(count=0)
    assert excess(wanting("abcd", limit=looser), names("abcd"), before=before) is None
    loosened = wanting("abcd", limit=NO_STOP_LIMIT)
    assert excess(wanting("", limit=NO_STOP_LIMIT), names("abcd"), before=loosened) is None


def test_nor_where_the_one_before_says_nothing_and_a_stricter_one_counts_at_once() -> None:
    before = wanting("abcd")
    assert excess(wanting("", limit=NO_STOP_LIMIT), names("abcd"), before=before) is not None
    assert (
        excess(wanting("abc", limit=StopLimit(count=0)), names("abcd"), before=before) is not None
    )


def test_a_named_revision_counts_for_what_it_stops_and_less() -> None:
    named = WaitingRevision(
        revision="aac867c0000", stops=tuple(sorted(names("bcd"))), running=4, limit=NO_STOP_LIMIT
    )

    def lets(wanted: str) -> bool:
        desired = replace(wanting(wanted), confirms=frozenset({"aac867c"}))
        stops = tuple(sorted(names("abcd") - names(wanted)))
        return confirmed_by_name(desired, replace(named, stops=stops), [named])

    assert lets("a")
    assert lets("ab")
    assert not lets("b")
    assert not lets("")
