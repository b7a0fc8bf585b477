"""Maintenance windows: when what serves may be stopped or restarted (not `windows`, of KV caches).

A window opens on its days at its time of the day, by the clock of its time zone, and stays open for
its length in real time. A time that the clock leaves out (summer time begins) is as much later as
it leaves out; one that it shows twice is the first.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MAX_SECONDS = 7 * 86_400.0
_AHEAD = timedelta(days=15)
"""A week, what the longest window takes, and a day for the zones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`days`: 0 is Monday. `start`: of the day's clock. `timezone`: its IANA name."""

    days: frozenset[int]
    start: time
    seconds: float
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Whether what serves may be stopped now. `changes_at`: when that is otherwise, on the clock of
    the plan's `now`; None: never. `opens`: the next opening, for reading; None: it is open."""

    is_open: bool
    changes_at: float | None = None
    opens: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What windows say of one moment. `until`: when they close, or open; UTC."""

    is_open: bool
    until: datetime
    zone: str


def opening(windows: Iterable[Window], at: datetime, zones: Mapping[str, tzinfo]) -> Opening | None:
    """None: there is no window. `zones`: by name, each that a window has."""
    spans = sorted(
        (each for window in windows for each in _spans(window, at, zones[window.timezone])),
        key=lambda each: each[:2],
    )
    if not spans:
        return None
    end: datetime | None = None
    zone = ""
    for start, stop, name in spans:
        if start > at:
            if end is None:
                return Opening(is_open=False, until=start, zone=name)
            if start > end:
                break
        elif stop <= at:
            continue
        if end is None or stop > end:
            end, zone = stop, name
    assert end is not None
    return Opening(is_open=True, until=end, zone=zone)


def _spans(window: Window, at: datetime, zone: tzinfo) -> Iterator[tuple[datetime, datetime, str]]:
    """When it is open, around this moment; all times are UTC's."""
    length = timedelta(seconds=window.seconds)
    day = (at - length).astimezone(zone).date() - timedelta(days=1)
    last = (at + _AHEAD).astimezone(zone).date()
    while day <= last:
        if day.weekday() in window.days:
            start = datetime.combine(day, window.start, tzinfo=zone).astimezone(UTC)
            yield start, start + length, window.timezone
        day += timedelta(days=1)
