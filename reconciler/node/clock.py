"""The agent's clock: one monotonic scale for decisions, and its reading on the wall for people."""

import time
from datetime import UTC, datetime


class SystemClock:
    """Monotonic seconds; a jump of the wall clock moves no decision."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self, moment: float) -> str:
        """A moment of the monotonic scale as RFC 3339, UTC."""
        at = time.time() + (moment - time.monotonic())
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
