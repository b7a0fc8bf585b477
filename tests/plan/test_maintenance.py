"""Maintenance windows on the clock of their time zone, over midnight and over summer time."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.maintenance import MAX_SECONDS, Opening, Window, opening

BERLIN = "Europe/Berlin"
NAMES = (BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata")
ZONES = {name: ZoneInfo(name) for name in NAMES}
EVERY_DAY = frozenset(range(7))

WINDOWS = st.builds(
    Window,
    days=st.sets(st.integers(0, 6), min_size=1).map(frozenset),
    start=st.builds(time, st.integers(0, 23), st.integers(0, 59)),
    seconds=st.floats(1, MAX_SECONDS).map(round).map(float),
    timezone=st.sampled_from(NAMES),
)
MOMENTS = st.integers(1_704_000_000, 1_893_000_000).map(  # 2024 to 2029
    lambda seconds: datetime.fromtimestamp(seconds, UTC)
)


def look(at: str, *windows: Window) -> Opening:
    found = opening(windows, datetime.fromisoformat(at), ZONES)
    assert found is not None
    return found


def daily(start: str, hours: float, zone: str = BERLIN, days: frozenset[int] = EVERY_DAY) -> Window:
    return Window(days=days, start=time.fromisoformat(start), seconds=hours * 3600, timezone=zone)


@pytest.mark.parametrize(
    ("at", "is_open", "until"),
    [
        ("2026-12-01T00:59:59Z", False, "2026-12-01T01:00:00Z"),
        ("2026-12-01T01:00:00Z", True, "2026-12-01T05:00:00Z"),
        ("2026-12-01T04:59:59Z", True, "2026-12-01T05:00:00Z"),
        ("2026-12-01T05:00:00Z", False, "2026-12-02T01:00:00Z"),
        ("2026-07-01T00:00:00Z", True, "2026-07-01T04:00:00Z"),  # an hour earlier in summer
    ],
)
def test_a_window_goes_by_the_clock_of_its_zone(at: str, is_open: bool, until: str) -> None:
    found = look(at, daily("02:00", 4))

    assert (found.is_open, found.until) == (is_open, datetime.fromisoformat(until))


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_opens() -> None:
    saturday = daily("23:00", 4, days=frozenset({5}))

    assert look("2026-12-06T01:30:00Z", saturday).is_open  # Sunday, 02:30 in Berlin
    assert not look("2026-12-05T01:30:00Z", saturday).is_open


def test_a_start_that_summer_time_leaves_out_is_as_much_later() -> None:
    """On 2026-03-29 the clock in Berlin goes from 02:00 to 03:00."""
    found = look("2026-03-29T00:00:00Z", daily("02:30", 1))

    assert found.until == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # 03:30 in Berlin


def test_a_start_that_comes_twice_is_the_first() -> None:
    """On 2026-10-25 the clock in Berlin shows 02:30 twice."""
    found = look("2026-10-25T00:00:00Z", daily("02:30", 1))
    later = look("2026-10-25T01:30:00Z", daily("02:30", 1))

    assert found.until == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert not later.is_open


def test_windows_that_meet_are_one() -> None:
    found = look("2026-12-01T02:30:00Z", daily("02:00", 1, "UTC"), daily("03:00", 2, "UTC"))

    assert found.until == datetime(2026, 12, 1, 5, tzinfo=UTC)


def test_no_window_is_no_opening() -> None:
    assert opening((), datetime(2026, 1, 1, tzinfo=UTC), {}) is None


@given(windows=st.lists(WINDOWS, min_size=1, max_size=3), at=MOMENTS)
def test_what_is_told_comes_true(windows: list[Window], at: datetime) -> None:
    """At `until`, and not before, it is the other way round."""
    found = opening(windows, at, ZONES)
    assert found is not None
    assert at < found.until
    between = at + (found.until - at) / 2
    for moment in (between, found.until - timedelta(seconds=1)):
        if moment >= at:
            same = opening(windows, moment, ZONES)
            assert same is not None
            assert same.is_open is found.is_open
    then = opening(windows, found.until, ZONES)
    assert then is not None
    if not found.is_open or found.until - at < timedelta(days=14):  # as far as one looks ahead
        assert then.is_open is not found.is_open


@given(window=WINDOWS, at=MOMENTS)
def test_a_window_is_open_for_its_length_from_its_start(window: Window, at: datetime) -> None:
    """Reckoned another way: by each day on whose clock it starts."""
    zone = ZONES[window.timezone]
    day = at.astimezone(zone).date()
    starts = [
        datetime.combine(day - timedelta(days=back), window.start, tzinfo=zone).astimezone(UTC)
        for back in range(-1, 10)
        if (day - timedelta(days=back)).weekday() in window.days
    ]
    found = opening([window], at, ZONES)
    assert found is not None
    length = timedelta(seconds=window.seconds)
    assert found.is_open is any(start <= at < start + length for start in starts)
