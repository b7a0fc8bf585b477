"""How long ago the loop has last ended a tick: a status that nobody renews must not pass for new.

Written by the loop alone, read by the HTTP side.
"""

from collections.abc import Callable
from dataclasses import dataclass

SILENT_SECONDS = 60.0
"""A loop ends a tick at least every 15 s. One on a machine that is overcome by its load takes
longer, and is not called silent for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """As of `now`. `as_of`: when the last tick without a fault ended, which is the moment that the
    status speaks of; None: none has yet. Both RFC 3339, UTC. `age_seconds`: since then, or since
    the start. `tick_seconds`: for how long a tick is under way; None: none is. `failed`: the last
    one had a fault. `silent_since`: from when on the loop counts as silent; None: it does not."""

    now: str
    as_of: str | None
    age_seconds: float
    tick_seconds: float | None = None
    failed: bool = False
    silent_since: str | None = None


class Pulse:
    """`clock`: monotonic seconds. `wall`: one of its moments as RFC 3339, UTC."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[float], str]) -> None:
        self._clock = clock
        self._wall = wall
        self._ended_at = clock()
        self._good_at: float | None = None
        self._began_at: float | None = None
        self._failed = False
        self._start = self._ended_at

    def begun(self) -> None:
        self._began_at = self._clock()

    def ended(self, *, failed: bool) -> None:
        self._began_at, self._failed = None, failed
        self._ended_at = self._clock()
        if not failed:
            self._good_at = self._ended_at

    def beat(self) -> Beat:
        now, good, began = self._clock(), self._good_at, self._began_at
        silent_at = self._ended_at + SILENT_SECONDS
        return Beat(
            now=self._wall(now),
            as_of=None if good is None else self._wall(good),
            age_seconds=round(now - (self._start if good is None else good), 3),
            tick_seconds=None if began is None else round(now - began, 3),
            failed=self._failed,
            silent_since=self._wall(silent_at) if now >= silent_at else None,
        )
