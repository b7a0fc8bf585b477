"""How much of a core the loop takes, and how soon it answers."""

import threading

import pytest

from reconciler.loop.pace import LONGEST_REST_SECONDS, REST_RATIO, SAVED_SECONDS, Rests, aside


def test_ticks_after_a_quiet_while_follow_one_upon_the_other() -> None:
    rests = Rests()

    first = [rests.after(0.04) for _ in range(5)]

    assert first == [0.0] * 5


def test_a_loop_that_is_never_idle_rests_most_of_the_time() -> None:
    rests = Rests()

    rested = sum(rests.after(0.01) for _ in range(1000))

    assert rested >= REST_RATIO * 10.0 - SAVED_SECONDS - 0.001


def test_idle_time_counts_as_rest_once() -> None:
    rests = Rests()
    while rests.after(1.0) == 0.0:
        pass

    rests.idle(0.1)
    rests.idle(0.1)

    assert abs(rests.after(0.05) - (LONGEST_REST_SECONDS - 0.2)) < 1e-9
    rests.idle(3600.0)
    assert [rests.after(1.0) for _ in range(5)][-1] == LONGEST_REST_SECONDS


@pytest.mark.parametrize(("models", "held_up"), [(10, True), (1000, False)])
async def test_many_models_are_reckoned_beside_the_loop_of_events(
    models: int, held_up: bool
) -> None:
    thread = await aside(threading.get_ident, models)

    assert (thread == threading.get_ident()) is held_up
