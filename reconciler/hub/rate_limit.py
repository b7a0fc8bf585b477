"""A limit on what all fetches of a node take from the hub together."""

import threading
import time
from collections.abc import Callable

_LONGEST_SLEEP_SECONDS = 0.1


class RateLimit:
    """A token bucket that holds one request's bytes; thread-safe. None: no limit."""

    def __init__(
        self,
        bytes_per_second: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    def take(self, count: int, *, stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until `count` bytes may pass, in the order of asking; at once when stopped."""
        if self._rate is None:
            return
        with self._lock:
            turn = max(self._clock(), self._free_at)
            self._free_at = turn + count / self._rate
        while (left := turn - self._clock()) > 0 and not stopped():
            self._sleep(min(left, _LONGEST_SLEEP_SECONDS))


UNLIMITED = RateLimit()
