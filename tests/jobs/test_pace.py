"""How fast bytes come."""

from reconciler.jobs.pace import Pace


def test_a_rate_needs_two_looks() -> None:
    pace = Pace()
    assert pace.at(0, 1.0) is None
    assert pace.at(500, 2.0) == 500


def test_what_was_there_before_is_not_counted() -> None:
    pace = Pace()
    assert pace.at(10_000, 1.0) is None
    assert pace.at(10_100, 2.0) == 100


def test_only_the_last_seconds_count() -> None:
    pace = Pace()
    for second in range(20):
        pace.at(0, float(second))
    rates = [pace.at((second - 19) * 100, float(second)) for second in range(20, 41)]
    assert rates[-1] == 100


def test_a_count_that_falls_back_begins_anew() -> None:
    pace = Pace()
    pace.at(0, 1.0)
    pace.at(900, 2.0)
    assert pace.at(100, 3.0) is None
    assert pace.at(150, 4.0) == 50
