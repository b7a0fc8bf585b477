"""What operators read of a download."""

import math
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from reconciler.apply.speed import Speed, told
from reconciler.status import Doing, Progress

MIB = 1 << 20


def noted(*steps: tuple[float, int], total: int) -> Speed:
    speed = Speed()
    for now, done in steps:
        speed.note(done, total, now)
    return speed


def at(speed: Speed, now: float) -> Progress:
    progress = speed.progress(Doing.FETCH, now)
    assert progress is not None
    return progress


def text(speed: Speed, now: float) -> str:
    return told(at(speed, now))


def test_says_how_much_is_there_how_fast_it_comes_and_how_long_it_takes() -> None:
    speed = noted((0.0, 0), (1.0, 200 * MIB), (2.0, 400 * MIB), (6.0, 1200 * MIB), total=4300 * MIB)

    assert text(speed, 6.0) == "1.2 of 4.2 GiB (27 %), 200 MiB/s, 16 s left"


def test_small_models_are_told_in_mebibytes() -> None:
    assert text(noted((0.0, 12 * MIB), total=253 * MIB), 0.0) == "12.0 of 253.0 MiB (4 %)"


def test_what_an_earlier_try_left_is_no_speed() -> None:
    speed = noted((0.0, 3000 * MIB), (0.5, 3001 * MIB), (1.5, 3011 * MIB), total=4000 * MIB)

    assert text(speed, 1.5) == "2.9 of 3.9 GiB (75 %), 10 MiB/s, 2 min left"


def test_a_file_that_begins_anew_is_no_speed_either() -> None:
    """gpustack#312 (scenario 27): more than all of it was never there."""
    speed = noted((0.0, 0), (1.0, 100 * MIB), (1.1, 0), (2.1, 100 * MIB), total=200 * MIB)

    assert text(speed, 2.1) == "100.0 of 200.0 MiB (50 %), 100 MiB/s, 1 s left"


def test_one_slow_second_changes_little() -> None:
    speed = noted((0.0, 0), (1.0, 100 * MIB), (2.0, 200 * MIB), total=10_000 * MIB)

    assert "82 MiB/s" in text(speed, 3.0)


def test_says_when_nothing_comes() -> None:
    speed = noted((0.0, 0), (1.0, 100 * MIB), total=200 * MIB)

    assert text(speed, 31.0) == "100.0 of 200.0 MiB (50 %), nothing came for 30 s"


def test_hours_are_told_as_hours() -> None:
    speed = noted((0.0, 0), (1.0, 50 << 10), (2.0, 100 << 10), total=1000 * MIB)

    assert text(speed, 2.0).endswith("50 KiB/s, 5 h 42 min left")


def test_what_is_done_has_no_time_left() -> None:
    speed = noted((0.0, 0), (1.0, 200 * MIB), total=200 * MIB)

    assert text(speed, 60.0) == "200.0 of 200.0 MiB (100 %)"


def test_nothing_is_said_before_it_is_known() -> None:
    assert Speed().progress(Doing.FETCH, 0.0) is None
    assert noted((0.0, 0), total=0).progress(Doing.FETCH, 1.0) is None


def test_the_rate_is_not_known_before_anything_came() -> None:
    progress = at(noted((0.0, 3 * MIB), total=4 * MIB), 5.0)

    assert (progress.done_bytes, progress.total_bytes) == (3 * MIB, 4 * MIB)
    assert (progress.bytes_per_second, progress.seconds_left) == (None, None)


def test_the_values_are_those_of_the_sentence() -> None:
    progress = at(noted((0.0, 0), (1.0, 200 * MIB), (2.0, 400 * MIB), total=4000 * MIB), 2.0)

    assert progress == Progress(
        doing=Doing.FETCH,
        done_bytes=400 * MIB,
        total_bytes=4000 * MIB,
        bytes_per_second=200.0 * MIB,
        seconds_left=18.0,
    )


def test_a_silence_has_no_time_left_and_ends_with_the_rate_of_what_comes_now() -> None:
    """A store that asked to slow down, or a connection that was replaced."""
    steps = [(0.0, 0), (1.0, 100 * MIB), (2.0, 200 * MIB)]
    silent = at(noted(*steps, total=1000 * MIB), 60.0)
    steps += [(62.0, 201 * MIB), (62.6, 261 * MIB)]
    again = at(noted(*steps, total=1000 * MIB), 62.6)

    assert (silent.bytes_per_second, silent.seconds_left) == (0.0, None)
    assert silent.silent_seconds == 58.0
    assert again.silent_seconds is None
    assert again.bytes_per_second == 100.0 * MIB


def test_the_wait_for_the_first_byte_is_no_speed() -> None:
    speed = noted((0.0, 0), (8.0, 512), (8.1, MIB), total=1000 * MIB)
    assert at(speed, 8.1).seconds_left is None

    speed.note(50 * MIB + 512, 1000 * MIB, 8.5)

    assert at(speed, 8.5).bytes_per_second == 100.0 * MIB


def test_a_store_that_gets_slower_shows_before_it_is_silent() -> None:
    speed = noted((0.0, 0), (1.0, 100 * MIB), (2.0, 200 * MIB), total=1000 * MIB)

    rates = [at(speed, now).bytes_per_second or 0.0 for now in (2.0, 4.0, 7.0, 10.0)]

    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 25 * MIB


def test_a_rate_limit_that_lets_a_little_through_now_and_then_is_told_as_its_mean() -> None:
    speed = noted(*((5.0 * step, step * MIB) for step in range(20)), total=1000 * MIB)

    assert at(speed, 19 * 5.0).bytes_per_second == MIB / 5


def test_the_same_number_said_again_is_no_news() -> None:
    speed = noted(
        (0.0, 0), (1.0, 10 * MIB), *((1.0 + n, 10 * MIB) for n in range(30)), total=90 * MIB
    )

    assert at(speed, 30.0).silent_seconds == 29.0


def test_another_amount_is_another_piece_of_work() -> None:
    speed = noted((0.0, 0), (1.0, 100 * MIB), total=200 * MIB)
    speed.note(0, 400 * MIB, 2.0)

    assert text(speed, 2.1) == "0.0 of 400.0 MiB (0 %)"


def test_the_last_byte_leaves_no_time_and_no_silence() -> None:
    progress = at(noted((0.0, 0), (1.0, 100 * MIB), (2.0, 200 * MIB), total=200 * MIB), 60.0)

    assert (progress.seconds_left, progress.silent_seconds) == (0.0, None)
    assert progress.bytes_per_second == 100.0 * MIB


def test_the_bytes_are_told_as_finely_as_their_share() -> None:
    """Six of 64 MiB were not 8 %, to whoever divides."""
    assert text(noted((0.0, 11 * MIB // 2), total=64 * MIB), 0.0) == "5.5 of 64.0 MiB (8 %)"


def test_a_sentence_says_what_is_done() -> None:
    speed = noted((0.0, 12 * MIB), total=253 * MIB)

    for doing, start in (
        (Doing.CHECK, "checks files that look changed, 12.0 of"),
        (Doing.IMPORT, "imports it into the hub, 12.0 of"),
    ):
        progress = speed.progress(doing, 0.0)
        assert progress is not None
        assert told(progress).startswith(start)


PAUSES = st.floats(min_value=0.0, max_value=90.0)


@given(
    st.lists(st.tuples(PAUSES, st.integers(0, 130)), min_size=1, max_size=40),
    PAUSES,
)
def test_whatever_comes_is_told_in_bounds(steps: list[tuple[float, int]], later: float) -> None:
    """gpustack#312 (scenario 27): 130 % and times that are negative."""
    times = list(accumulate(pause for pause, _ in steps))
    done = [percent * MIB for _, percent in steps]
    speed = noted(*zip(times, done, strict=True), total=100 * MIB)

    progress = at(speed, times[-1] + later)

    assert progress.done_bytes == min(done[-1], 100 * MIB)
    rate, left = progress.bytes_per_second, progress.seconds_left
    assert rate is None or (rate >= 0.0 and math.isfinite(rate))
    assert left is None or (left >= 0.0 and math.isfinite(left))
    assert (left == 0.0) or progress.done_bytes < 100 * MIB
    assert told(progress)
