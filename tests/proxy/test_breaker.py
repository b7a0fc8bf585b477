"""A replica that fails is left alone for a while, tried by one request, and taken back."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.breaker import (
    CLOSED,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    WITHIN_SECONDS,
    Attempt,
    Breaker,
    Breakers,
    Outcome,
    Standing,
    outcome_of,
)

HERE = (None, ModelName("m"))
THERE = (Address(host="10.0.0.1", port=8080), ModelName("m"))


def _after(outcomes: str, *, seconds: float = 1.0, breaker: Breaker = CLOSED) -> Breaker:
    """`outcomes`: + served, - failed, 0 neither; the first one now, one every so many seconds."""
    meant = {"+": Outcome.SERVED, "-": Outcome.FAILED, "0": Outcome.NEITHER}
    for number, each in enumerate(outcomes):
        breaker, attempt = breaker.began(number * seconds)
        breaker = breaker.ended(attempt, meant[each], number * seconds)
    return breaker


@pytest.mark.parametrize(
    ("outcomes", "opens"),
    [
        ("--", False),
        ("---", True),
        ("-+-+-", True),
        ("-++--", True),
        ("-++-+-", False),
        ("00000000", False),
        ("--00000", False),
        ("-0-0-", True),
    ],
)
def test_it_opens_after_three_failures_of_the_last_five(outcomes: str, opens: bool) -> None:
    now = len(outcomes) - 1.0
    standing = Standing.OPEN if opens else Standing.CLOSED
    assert _after(outcomes).standing(now) is standing


def test_failures_that_are_long_ago_do_not_count() -> None:
    assert _after("------", seconds=WITHIN_SECONDS / 2).until is None


@pytest.mark.parametrize(
    ("status", "retry_after", "outcome"),
    [
        (200, False, Outcome.SERVED),
        (400, False, Outcome.NEITHER),
        (404, False, Outcome.NEITHER),
        (429, True, Outcome.NEITHER),
        (499, False, Outcome.NEITHER),
        (500, False, Outcome.FAILED),
        (502, True, Outcome.FAILED),
        (503, False, Outcome.FAILED),
        (503, True, Outcome.NEITHER),
        (504, False, Outcome.FAILED),
    ],
)
def test_only_5xx_count_as_failures(status: int, retry_after: bool, outcome: Outcome) -> None:
    assert outcome_of(status, retry_after=retry_after) is outcome


def test_exactly_one_request_is_the_probe() -> None:
    breaker = _after("---")
    due = 2.0 + FIRST_PAUSE_SECONDS
    assert breaker.standing(due - 0.1) is Standing.OPEN
    assert breaker.retry_seconds(due - 0.25) == 0.25
    assert breaker.standing(due) is Standing.HALF_OPEN
    probing, probe = breaker.began(due)
    assert probing.standing(due) is Standing.PROBING
    assert probe.probe
    assert not probing.began(due)[1].probe
    assert probing.ended(probe, Outcome.SERVED, due + 1).standing(due + 1) is Standing.CLOSED


def test_a_probe_whose_client_leaves_is_followed_by_another() -> None:
    probing, probe = _after("---").began(9.0)
    assert probing.ended(probe, Outcome.NEITHER, 9.5).standing(9.5) is Standing.HALF_OPEN


def test_pauses_grow_up_to_the_longest() -> None:
    breaker, now, pauses = _after("---"), 2.0, []
    for _ in range(8):
        pauses.append(breaker.retry_seconds(now))
        now += pauses[-1]
        breaker, probe = breaker.began(now)
        breaker = breaker.ended(probe, Outcome.FAILED, now)
    assert pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE_SECONDS, 30, 30]


@pytest.mark.parametrize(
    ("closed_for", "pause"), [(5.0, 2 * FIRST_PAUSE_SECONDS), (40.0, FIRST_PAUSE_SECONDS)]
)
def test_one_that_soon_fails_again_pauses_for_longer(closed_for: float, pause: float) -> None:
    breaker, probe = _after("---").began(5.0)
    breaker = breaker.ended(probe, Outcome.SERVED, 5.0)
    now = 5.0 + closed_for
    for _ in range(3):
        breaker, attempt = breaker.began(now)
        breaker = breaker.ended(attempt, Outcome.FAILED, now)
    assert breaker.retry_seconds(now) == pause


def test_what_began_before_it_opened_says_nothing_of_now() -> None:
    breaker, old = CLOSED.began(0.0)
    breaker = _after("---", breaker=breaker)
    assert breaker.ended(old, Outcome.SERVED, 2.5) == breaker
    assert breaker.ended(old, Outcome.FAILED, 2.5) == breaker
    assert breaker.openings == 1


def test_an_old_probe_does_not_end_the_new_one() -> None:
    """Both under way at once: the breaker was closed by another request, and opened again."""
    breaker, old = _after("---").began(2.0)
    breaker, other = breaker.began(2.0)
    breaker = _after("---", breaker=breaker.ended(other, Outcome.SERVED, 2.0))
    breaker, new = breaker.began(90.0)
    assert new.probe
    for outcome in Outcome:
        assert breaker.ended(old, outcome, 90.0) == breaker


def test_each_replica_has_its_own_and_what_is_well_takes_no_room() -> None:
    breakers = Breakers()
    for now in range(3):
        breakers.ended(THERE, breakers.began(THERE, now), Outcome.FAILED, now)
        breakers.ended(HERE, breakers.began(HERE, now), Outcome.NEITHER, now)
    assert breakers.standing(THERE, 2.5) is Standing.OPEN
    assert breakers.retry_seconds(THERE, 2.5) == 0.5
    assert breakers.standing(HERE, 2.5) is Standing.CLOSED
    breakers.keep_only([HERE])
    assert breakers.standing(THERE, 2.5) is Standing.CLOSED


class AnyTraffic(RuleBasedStateMachine):
    """Requests as the caller sends them: anywhere while it is usable, and, since it may be the only
    replica, at times while it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CLOSED
        self.now = 0.0
        self.under_way: list[Attempt] = []

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 5.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def begins(self) -> None:
        self.breaker, attempt = self.breaker.began(self.now)
        self.under_way.append(attempt)

    @rule()
    def fails_at_once(self) -> None:
        for _ in range(3):
            self.breaker, attempt = self.breaker.began(self.now)
            self.breaker = self.breaker.ended(attempt, Outcome.FAILED, self.now)

    @precondition(lambda self: self.under_way)
    @rule(outcome=st.sampled_from(Outcome), data=st.data())
    def ends(self, outcome: Outcome, data: st.DataObject) -> None:
        attempt = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        before = self.breaker
        self.breaker = before.ended(attempt, outcome, self.now)
        if outcome is Outcome.NEITHER:
            assert self.breaker.until == before.until
        if outcome is Outcome.SERVED:
            assert self.breaker.openings == before.openings
            if attempt.opening == before.openings:
                assert self.breaker.standing(self.now) is Standing.CLOSED

    @invariant()
    def there_is_one_probe_at_most_and_it_is_known(self) -> None:
        current = [each for each in self.under_way if each.opening == self.breaker.openings]
        probes = sum(each.probe for each in current)
        if self.breaker.until is not None:
            assert probes == self.breaker.probing

    @invariant()
    def it_is_tried_again_after_the_longest_pause_at_the_latest(self) -> None:
        later = self.breaker.standing(self.now + LONGEST_PAUSE_SECONDS)
        assert later is not Standing.OPEN
        if later is Standing.PROBING:
            assert any(each.probe for each in self.under_way)

    @invariant()
    def what_it_keeps_is_bounded(self) -> None:
        assert len(self.breaker.outcomes) <= 5
        assert self.breaker.pauses <= 16


TestAnyTraffic = AnyTraffic.TestCase
TestAnyTraffic.settings = settings(max_examples=200, stateful_step_count=40)
