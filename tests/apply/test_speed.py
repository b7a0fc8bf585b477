"""What operators read of a download."""

from reconciler.apply.speed import Speed

MB = 1_000_000


def noted(*steps: tuple[float, int], total: int) -> Speed:
    speed = Speed()
    for now, done in steps:
        speed.note(done, total, now)
    return speed


def test_says_how_much_is_there_how_fast_it_comes_and_how_long_it_takes() -> None:
    speed = noted((0.0, 0), (1.0, 200 * MB), (2.0, 400 * MB), (6.0, 1200 * MB), total=4300 * MB)

    assert speed.text(6.0) == "1.2 of 4.3 GB (27 %), 200 MB/s, 16 s left"


def test_small_models_are_told_in_megabytes() -> None:
    assert noted((0.0, 12 * MB), total=253 * MB).text(0.0) == "12 of 253 MB (4 %)"


def test_what_an_earlier_try_left_is_no_speed() -> None:
    speed = noted((0.0, 3000 * MB), (1.0, 3010 * MB), total=4000 * MB)

    assert speed.text(1.0) == "3.0 of 4.0 GB (75 %), 10 MB/s, 2 min left"


def test_a_file_that_begins_anew_is_no_speed_either() -> None:
    """gpustack#312 (scenario 27): more than all of it was never there."""
    speed = noted((0.0, 0), (1.0, 100 * MB), (1.1, 0), (2.1, 100 * MB), total=200 * MB)

    assert speed.text(2.1) == "100 of 200 MB (50 %), 100 MB/s, 1 s left"


def test_one_slow_second_changes_little() -> None:
    speed = noted((0.0, 0), (1.0, 100 * MB), (2.0, 100 * MB), total=10_000 * MB)

    assert "82 MB/s" in speed.text(2.0)


def test_says_when_nothing_comes() -> None:
    speed = noted((0.0, 0), (1.0, 100 * MB), total=200 * MB)

    assert speed.text(31.0) == "100 of 200 MB (50 %), nothing came for 30 s"


def test_hours_are_told_as_hours() -> None:
    speed = noted((0.0, 0), (1.0, 50_000), total=1000 * MB)

    assert speed.text(1.0).endswith("50 kB/s, 5 h 34 min left")


def test_what_is_done_has_no_time_left() -> None:
    speed = noted((0.0, 0), (1.0, 200 * MB), total=200 * MB)

    assert speed.text(60.0) == "200 of 200 MB (100 %)"


def test_nothing_is_said_before_it_is_known() -> None:
    assert Speed().text(0.0) == ""
