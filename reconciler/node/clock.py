"""The agent's clock: one monotonic scale for decisions, and its reading on the wall for people."""

import time
from datetime import UTC, datetime

_SLACK_SECONDS = 0.05


class SystemClock:
    """Monotonic seconds; a jump of the wall clock moves no decision."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self, moment: float) -> str:
        """A moment of the monotonic scale as RFC 3339, UTC.

        The same moment reads the same until the wall clock is set: else each tick would publish a
        status that differs by a millisecond.
        """
        offset = time.time() - time.monotonic()
        if abs(offset - self._offset) > _SLACK_SECONDS:
            self._offset = offset
        return datetime.fromtimestamp(moment + self._offset, UTC).isoformat(timespec="milliseconds")
