"""The maintenance windows on this node's clocks: whether one is open, and when that changes."""

from collections.abc import Iterable
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

from reconciler.loop.clock import Clock
from reconciler.plan.maintenance import DAYS, Maintenance, Opening, Window, opening

_JITTER_SECONDS = 1.0
"""Two clocks tell the same moment a little differently at each look."""


class Windows:
    """Kept by the loop alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._zones: dict[str, tzinfo | None] = {}
        self._last: Maintenance | None = None
        self._told: tuple[tuple[Window, ...], datetime, Opening | None] | None = None

    def look(self, windows: Iterable[Window], now: float) -> Maintenance | None:
        """None: there are none."""
        found = self._look(tuple(windows), now)
        last = self._last
        if (
            found is not None
            and last is not None
            and (found.is_open, found.opens) == (last.is_open, last.opens)
            and found.changes_at is not None
            and last.changes_at is not None
            and abs(found.changes_at - last.changes_at) < _JITTER_SECONDS
        ):
            return last
        self._last = found
        return found

    def _look(self, windows: tuple[Window, ...], now: float) -> Maintenance | None:
        if not windows:
            return None
        at = datetime.fromisoformat(self._clock.wall(now))
        told = self._opening(windows, at)
        if told is None:
            names = ", ".join(sorted({each.timezone for each in windows}))
            return Maintenance(is_open=False, opens=f"never: this node has no time zone {names}")
        changes_at = now + (told.until - at).total_seconds()
        if told.is_open:
            return Maintenance(is_open=True, changes_at=changes_at)
        local = told.until.astimezone(self._zone(told.zone))
        opens = f"{DAYS[local.weekday()].capitalize()} {local:%Y-%m-%d %H:%M} {told.zone}"
        return Maintenance(is_open=False, changes_at=changes_at, opens=opens)

    def _opening(self, windows: tuple[Window, ...], at: datetime) -> Opening | None:
        """Reckoned once for as long as it holds."""
        if self._told is not None:
            of, since, told = self._told
            if of == windows and since <= at and (told is None or at < told.until):
                return told
        zones = {
            name: zone
            for name in {each.timezone for each in windows}
            if (zone := self._zone(name)) is not None
        }
        told = opening((each for each in windows if each.timezone in zones), at, zones)
        self._told = (windows, at, told)
        return told

    def _zone(self, name: str) -> tzinfo | None:
        if name not in self._zones:
            try:
                self._zones[name] = ZoneInfo(name)
            except (OSError, ValueError, LookupError):  # no database, or not in it
                self._zones[name] = None
        return self._zones[name]
