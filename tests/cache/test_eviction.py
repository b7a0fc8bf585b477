"""Which files go: properties that hold for every cache, and cases with names."""

from hypothesis import given
from hypothesis import strategies as st

from reconciler.cache.eviction import (
    Choice,
    Freed,
    Inode,
    Stock,
    Unit,
    all_evictions,
    choose_evictions,
    freed_by,
    in_order,
)

SIZES = {(1, number): (number + 1) * 10 for number in range(8)}
inodes = st.sets(st.sampled_from(sorted(SIZES)), min_size=1, max_size=4)


def unit(digest: str, *numbers: Inode, last_used: float = 0.0) -> Unit:
    return Unit(
        prefix="gguf/org_name",
        digest=digest,
        paths=frozenset(map(str, numbers)),
        whole=True,
        last_used=last_used,
        inodes={inode: SIZES[inode] for inode in numbers},
    )


@st.composite
def stocks(draw: st.DrawFn) -> Stock:
    uses = draw(st.lists(st.integers(0, 5), max_size=6))
    return Stock(
        units=tuple(
            unit(f"{number}", *sorted(draw(inodes)), last_used=at) for number, at in enumerate(uses)
        ),
        staying=frozenset(draw(st.sets(st.sampled_from(sorted(SIZES)), max_size=3))),
        outside=frozenset(draw(st.sets(st.sampled_from(sorted(SIZES)), max_size=2))),
    )


missing = st.builds(Freed, cache=st.integers(0, 200), disk=st.integers(0, 200))


@given(stocks(), missing)
def test_frees_at_least_what_is_missing_or_touches_nothing(there: Stock, asked: Freed) -> None:
    choice = choose_evictions(there, asked)
    if choice.enough:
        assert choice.freed.covers(asked)
    else:
        assert choice.units == ()
        assert not freed_by(there, there.units).covers(asked)


@given(stocks(), missing)
def test_frees_what_it_says_and_no_byte_of_what_stays(there: Stock, asked: Freed) -> None:
    choice = choose_evictions(there, asked)
    if not choice.enough:
        return
    gone = _gone(there, choice)
    assert choice.freed.cache == sum(SIZES[inode] for inode in gone)
    assert choice.freed.disk == sum(SIZES[inode] for inode in gone - there.outside)
    assert gone.isdisjoint(there.staying)


@given(stocks(), missing)
def test_the_least_recently_used_go_first_and_none_too_many(there: Stock, asked: Freed) -> None:
    choice = choose_evictions(there, asked)
    order = in_order(there.units)
    assert list(choice.units) == [each for each in order if each in choice.units]
    if choice.units:
        spared = freed_by(there, choice.units[:-1])
        assert not spared.covers(asked)
        last = order.index(choice.units[-1])
        for each in order[:last]:  # older ones stay only where going would free nothing
            if each not in choice.units:
                assert freed_by(there, [*choice.units, each]) == choice.freed


@given(stocks())
def test_cleaning_up_removes_each_file_that_nothing_needs(there: Stock) -> None:
    gone = _gone(there, all_evictions(there))
    assert gone == {inode for each in there.units for inode in each.inodes} - there.staying


def test_a_shared_file_is_freed_once_with_its_last_user() -> None:
    shared, mine, yours = (1, 7), (1, 0), (1, 1)
    there = Stock(
        units=(unit("a", shared, mine, last_used=1), unit("b", shared, yours, last_used=2))
    )
    assert choose_evictions(there, Freed(cache=10)).freed == Freed(cache=10, disk=10)
    assert choose_evictions(there, Freed(cache=11)).freed == Freed(cache=110, disk=110)


def test_a_revision_whose_files_all_stay_elsewhere_is_passed_over() -> None:
    """kubeai#406 (scenario 35): what another model uses is not freed by deleting this one."""
    there = Stock(
        units=(unit("a", (1, 7), last_used=1), unit("b", (1, 0), last_used=2)),
        staying=frozenset({(1, 7)}),
    )
    choice = choose_evictions(there, Freed(cache=5))
    assert [each.digest for each in choice.units] == ["b"]


def test_a_file_with_a_name_outside_frees_the_budget_and_not_the_disk() -> None:
    there = Stock(units=(unit("a", (1, 0)),), outside=frozenset({(1, 0)}))
    assert choose_evictions(there, Freed(cache=10)).enough
    assert not choose_evictions(there, Freed(disk=10)).enough


def _gone(there: Stock, choice: Choice) -> set[Inode]:
    left = {inode for each in there.units if each not in choice.units for inode in each.inodes}
    return {inode for each in choice.units for inode in each.inodes} - left - there.staying
