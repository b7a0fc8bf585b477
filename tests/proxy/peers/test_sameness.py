"""Two addresses, one agent."""

from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.peering import Address
from reconciler.proxy.peers.sameness import Sameness

A, B, C, D = (Address(host=host, port=8000) for host in ("10.0.0.1", "10.0.0.2", "fd00::1", "x"))
ALL = (A, B, C, D)


def test_the_address_to_use_is_the_one_that_was_named_last() -> None:
    same = Sameness()
    same.join(C, A)
    assert same.listing({A, B, C}) == {B: (), C: (A,)}
    same.join(A, C)
    assert same.listing({A, B, C}) == {A: (C,), B: ()}


def test_a_third_address_joins_the_two() -> None:
    same = Sameness()
    same.join(A, C)
    same.join(C, D)
    assert same.listing(ALL) == {B: (), C: (A, D)}


def test_when_the_used_one_is_listed_no_more_the_other_takes_its_place() -> None:
    same = Sameness()
    same.join(A, C)
    same.keep({B, C})
    assert same.listing({B, C}) == {B: (), C: ()}
    assert same.listing({A, B, C}) == {A: (), B: (), C: ()}


def test_one_that_is_another_agents_by_now_stands_alone() -> None:
    same = Sameness()
    same.join(A, C)
    same.join(A, D)
    same.part(A)
    assert same.listing(ALL) == {A: (), B: (), C: (D,)}


def test_an_address_is_itself() -> None:
    same = Sameness()
    same.join(A, A)
    assert same.listing({A}) == {A: ()}


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from(ALL), st.sampled_from(ALL)),
        st.tuples(st.just("part"), st.sampled_from(ALL), st.just(A)),
        st.tuples(st.just("keep"), st.sampled_from(ALL), st.sampled_from(ALL)),
    )
)


@given(_STEPS, st.frozensets(st.sampled_from(ALL)))
def test_each_known_address_stands_in_the_listing_once(
    steps: list[tuple[str, Address, Address]], known: frozenset[Address]
) -> None:
    same = Sameness()
    for step, one, other in steps:
        if step == "join":
            same.join(one, other)
        elif step == "part":
            same.part(one)
        else:
            same.keep({one, other})
    listing = same.listing(known)
    said = [address for first, also in listing.items() for address in (first, *also)]
    assert sorted(said) == sorted(known)
