"""How long a replica lately took to its first byte: newest answers count most, old ones not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.first_bytes import (
    FORGET_SECONDS,
    HALF_LIFE_SECONDS,
    SILENT_FACTOR,
    FirstBytes,
)

HERE = (None, ModelName("m"))
THERE = (Address(host="10.0.0.1", port=8080), ModelName("m"))


def _answer(means: FirstBytes, seconds: float, now: float, *, streams: bool = True) -> None:
    waiting = means.began(HERE, now - seconds, streams=streams)
    means.came(HERE, waiting, now, streams=streams)


def _seconds(means: FirstBytes, now: float) -> float | None:
    return means.seconds(HERE, now, streams=True)


@given(
    answers=st.lists(st.tuples(st.floats(0.002, 100), st.floats(0, 50)), min_size=1, max_size=30)
)
def test_it_is_between_the_least_and_the_most(answers: list[tuple[float, float]]) -> None:
    means, now = FirstBytes(), 1000.0
    for seconds, later in answers:
        now += later
        _answer(means, seconds, now)
    mean = _seconds(means, now)
    assert mean is not None
    taken = [seconds for seconds, _ in answers]
    assert min(taken) * 0.999 <= mean <= max(taken) * 1.001


def test_an_answer_counts_half_after_the_half_life() -> None:
    means = FirstBytes()
    _answer(means, 0.1, 100.0)
    _answer(means, 0.8, 100.0 + HALF_LIFE_SECONDS)
    assert _seconds(means, 100.0 + HALF_LIFE_SECONDS) == pytest.approx(0.4)  # 0.1^⅓ × 0.8^⅔


def test_one_long_prompt_among_many_does_not_make_a_replica_slow() -> None:
    means = FirstBytes()
    for number in range(9):
        _answer(means, 0.1, 100.0 + number)
    _answer(means, 10.0, 109.0)
    assert _seconds(means, 109.0) == pytest.approx(0.16, abs=0.03)


def test_without_answers_nothing_is_known_after_a_while() -> None:
    means = FirstBytes()
    assert _seconds(means, 0.0) is None
    _answer(means, 0.1, 100.0)
    assert _seconds(means, 99.9 + FORGET_SECONDS) == pytest.approx(0.1)
    assert _seconds(means, 100.0 + FORGET_SECONDS) is None
    _answer(means, 5.0, 101.0 + FORGET_SECONDS)
    assert _seconds(means, 101.0 + FORGET_SECONDS) == pytest.approx(5.0, rel=0.7)


def test_silence_shows_before_the_first_byte_comes() -> None:
    means = FirstBytes()
    _answer(means, 0.1, 100.0)
    waiting = means.began(HERE, 100.0, streams=True)
    usual = 0.1 * SILENT_FACTOR
    assert _seconds(means, 100.0 + usual * 0.9) == pytest.approx(0.1)
    assert _seconds(means, 102.0) == pytest.approx(2.0)
    means.left(HERE, waiting, 102.0, streams=True)
    assert _seconds(means, 102.0) == pytest.approx(0.47, abs=0.01)  # as of two answers


def test_a_client_that_leaves_soon_says_nothing() -> None:
    means = FirstBytes()
    _answer(means, 0.1, 100.0)
    waiting = means.began(HERE, 100.0, streams=True)
    means.left(HERE, waiting, 100.2, streams=True)
    assert _seconds(means, 100.2) == pytest.approx(0.1)


def test_a_failure_after_a_long_wait_makes_nobody_slow() -> None:
    """Of a node that froze or was cut off, say: once it is back, it is as quick as before."""
    means = FirstBytes()
    _answer(means, 0.1, 100.0)
    waiting = means.began(HERE, 100.0, streams=True)
    means.gone(HERE, waiting, streams=True)
    assert _seconds(means, 118.0) == pytest.approx(0.1)


def test_one_that_hangs_stays_slow_after_its_clients_have_left() -> None:
    """A stopped engine: else each of them would be followed by the next one."""
    means, now = FirstBytes(), 100.0
    for _ in range(100):
        _answer(means, 0.1, now)
    for _ in range(3):
        waiting = means.began(HERE, now, streams=True)
        now += 60.0
        means.left(HERE, waiting, now, streams=True)
    mean = _seconds(means, now)
    assert mean is not None
    assert mean > 10.0


def test_of_one_that_never_answered_what_waits_is_all_that_is_known() -> None:
    means = FirstBytes()
    first = means.began(HERE, 100.0, streams=True)
    means.began(HERE, 103.0, streams=True)
    assert _seconds(means, 104.0) == pytest.approx(4.0)
    means.gone(HERE, first, streams=True)
    assert _seconds(means, 104.0) == pytest.approx(1.0)


def test_streams_and_whole_answers_are_apart() -> None:
    means = FirstBytes()
    _answer(means, 0.1, 100.0)
    _answer(means, 30.0, 100.0, streams=False)
    assert _seconds(means, 100.0) == pytest.approx(0.1)
    assert means.seconds(HERE, 100.0, streams=False) == pytest.approx(30.0)


def test_replicas_that_are_gone_are_forgotten_and_their_late_answers_too() -> None:
    means = FirstBytes()
    _answer(means, 0.1, 100.0)
    waiting = means.began(THERE, 100.0, streams=True)
    means.keep_only([HERE])
    means.came(THERE, waiting, 101.0, streams=True)
    means.gone(THERE, waiting, streams=True)
    assert means.seconds(THERE, 101.0, streams=True) is None
    assert _seconds(means, 101.0) == pytest.approx(0.1)
