"""From answers to the agents that a name leads to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.condition import Reason
from reconciler.plan.peering import Address
from reconciler.proxy.peers.membership import (
    LAG_SECONDS,
    NOBODY_YET,
    Answer,
    Membership,
    after_headless,
    after_listed,
)

NAME = Address(host="agents", port=8000)
HERE, V6_HERE = Address(host="10.0.0.1", port=8000), Address(host="fd00::1", port=8000)


def peer(number: int) -> Address:
    return Address(host=f"10.0.0.{number}", port=8000)


def us(*others: int) -> Answer:
    return Answer(others=frozenset(map(peer, others)), own=frozenset({HERE}))


def strangers(*others: int) -> Answer:
    return Answer(others=frozenset(map(peer, others)))


FAILED = Answer(failure="there is no such name")


def told(*answers: tuple[float, Answer]) -> Membership:
    """What a headless name comes to. Each answer with its moment."""
    member = NOBODY_YET
    for now, answer in answers:
        member = after_headless(member, answer, place=NAME, now=now)
    return member


def known(member: Membership) -> list[Address]:
    return sorted(member.known)


def reason(member: Membership) -> Reason | None:
    return member.trouble.reason if member.trouble else None


def test_all_but_this_node_are_peers() -> None:
    member = told((0, us(2, 3)))
    assert (known(member), reason(member)) == ([peer(2), peer(3)], None)


def test_alone_behind_the_name_is_fine() -> None:
    assert told((0, us())).trouble is None


@pytest.mark.parametrize("answer", [FAILED, strangers(2, 3, 4), strangers(3)])
def test_what_cannot_be_the_whole_truth_changes_nothing(answer: Answer) -> None:
    member = told((0, us(2, 3)), *((float(now), answer) for now in range(1, 999)))
    assert known(member) == [peer(2), peer(3)]
    assert member.taken_up_at == 0
    assert reason(member) is (Reason.LOOKUP_FAILED if answer is FAILED else Reason.SELF_MISSING)


def test_a_fault_is_over_with_the_next_whole_answer() -> None:
    member = told((0, us(2)), (5, FAILED), (10, us(2, 3)))
    assert (known(member), reason(member)) == ([peer(2), peer(3)], None)


def test_an_agent_that_is_listed_no_more_is_used_for_as_long_as_dns_may_lag() -> None:
    """kubernetes/dns#332."""
    last = LAG_SECONDS + 5 - 0.1
    assert known(told((0, us(2, 3)), (5, us(2)), (last, us(2)))) == [peer(2), peer(3)]
    assert known(told((0, us(2, 3)), (5, us(2)), (last + 0.1, us(2)))) == [peer(2)]


def test_an_agent_that_is_listed_again_stays() -> None:
    member = told((0, us(2)), (5, us()), (34, us(2)), (40, us()), (69, us()))
    assert known(member) == [peer(2)]


def test_a_failure_takes_nobody_away_and_the_next_answer_does() -> None:
    before = told((0, us(2)), (5, us()), (50, FAILED))
    assert known(before) == [peer(2)]
    assert known(after_headless(before, us(), place=NAME, now=55)) == []


@pytest.mark.parametrize(
    "addresses", [{peer(9)}, {Address(host="fd00::9", port=8000)}, {peer(9), V6_HERE}]
)
def test_one_foreign_address_of_each_family_is_a_service_and_no_agent(
    addresses: set[Address],
) -> None:
    answer = Answer(others=frozenset(addresses))
    member = told((0, answer), (LAG_SECONDS, answer))
    assert (known(member), reason(member)) == ([], Reason.NOT_HEADLESS)
    assert member.trouble is not None
    assert "clusterIP: None" in member.trouble.step


def test_a_service_that_came_to_have_an_address_leaves_only_ourselves() -> None:
    answers = [(float(now), strangers(9)) for now in range(5, 40, 5)]
    assert known(told((0, us(2, 3)), *answers[:-1])) == [peer(2), peer(3)]
    assert known(told((0, us(2, 3)), *answers)) == []


@pytest.mark.parametrize("answer", [strangers(2), strangers(2, 3)])
def test_dns_may_not_know_a_node_that_has_just_started(answer: Answer) -> None:
    early = told((0, answer), (LAG_SECONDS - 0.1, answer))
    assert (known(early), reason(early)) == ([], Reason.NOT_READ_YET)
    late = after_headless(early, answer, place=NAME, now=LAG_SECONDS)
    assert (known(late), reason(late)) == (
        [],
        Reason.NOT_HEADLESS if len(answer.others) == 1 else Reason.SELF_MISSING,
    )


def test_a_list_leads_to_whatever_it_leads_to() -> None:
    member = after_listed(NOBODY_YET, strangers(2), place=NAME, now=0)
    assert (known(member), reason(member)) == ([peer(2)], None)
    member = after_listed(member, FAILED, place=NAME, now=60)
    assert (known(member), reason(member)) == ([peer(2)], Reason.LOOKUP_FAILED)
    member = after_listed(member, us(), place=NAME, now=120)
    assert (known(member), reason(member)) == ([peer(2)], None)
    assert known(after_listed(member, us(), place=NAME, now=150)) == []


_NUMBERS = st.frozensets(st.integers(2, 6), max_size=4)
_ANSWERS = st.one_of(
    st.just(FAILED),
    _NUMBERS.map(lambda numbers: us(*numbers)),
    st.frozensets(st.integers(2, 6), min_size=1, max_size=4).map(lambda some: strangers(*some)),
)
_SEQUENCES = st.lists(st.tuples(st.floats(0.1, 40.0), _ANSWERS), max_size=25)


@given(_SEQUENCES)
def test_of_any_answers_only_whole_ones_bring_somebody(steps: list[tuple[float, Answer]]) -> None:
    """Nobody is known whom no whole answer has named; whom the newest whole one names is known,
    unless a Service took the agents' place; a failure and an answer without us bring nobody."""
    member, now = NOBODY_YET, 0.0
    whole: set[Address] = set()
    for passed, answer in steps:
        now += passed
        before, member = member, after_headless(member, answer, place=NAME, now=now)
        assert not member.known.keys() & answer.own
        if answer.own:
            whole |= answer.others
            assert answer.others <= member.known.keys()
            assert member.trouble is None
            assert member.taken_up_at == now
        else:
            assert member.known.keys() <= before.known.keys()
            assert member.trouble is not None
            assert member.taken_up_at == before.taken_up_at
        if answer.failure is not None:
            assert member.known == before.known
        assert member.known.keys() <= whole


@given(_SEQUENCES)
def test_nobody_goes_before_the_lag_is_over(steps: list[tuple[float, Answer]]) -> None:
    member, now = NOBODY_YET, 0.0
    named: dict[Address, float] = {}
    for passed, answer in steps:
        now += passed
        before, member = member, after_headless(member, answer, place=NAME, now=now)
        for gone in before.known.keys() - member.known.keys():
            assert now - named[gone] >= LAG_SECONDS
        if answer.own:
            named.update(dict.fromkeys(answer.others, now))
