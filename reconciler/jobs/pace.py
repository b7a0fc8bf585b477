"""How fast bytes come, lately."""

from collections import deque

_WINDOW_SECONDS = 10.0


class Pace:
    """`now`: a monotonic time, in seconds. A count that falls back begins anew."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, done: int, now: float) -> int | None:
        """Bytes a second over the last seconds; None: not known yet."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        return int((done - before) / (now - began)) if now > began else None
