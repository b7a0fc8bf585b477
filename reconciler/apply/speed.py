"""How fast a download is, and when it will be done (PURE: the clock is handed in)."""

import math
import threading

_SMOOTHED_SECONDS = 5.0
_STEP_SECONDS = 0.5
_SILENT_SECONDS = 10.0


class Speed:
    """Smoothed over some seconds. Thread-safe: one thread notes, another asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self._total = 0
        self._at: float | None = None
        self._step: tuple[float, int] = (0.0, 0)
        self._rate: float | None = None

    def note(self, done: int, total: int, now: float) -> None:
        """So many bytes are there; fewer than before where a file begins anew."""
        with self._lock:
            if self._at is None or done < self._done:
                self._step = (now, done)
            began, before = self._step
            if now - began >= _STEP_SECONDS:
                rate = (done - before) / (now - began)
                weight = 1.0 - math.exp((began - now) / _SMOOTHED_SECONDS)
                self._rate = (
                    rate if self._rate is None else self._rate + weight * (rate - self._rate)
                )
                self._step = (now, done)
            self._done, self._total, self._at = done, total, now

    def text(self, now: float) -> str:
        """`1.2 of 4.3 GB (28 %), 210 MB/s, 15 s left`; empty before the first byte is known."""
        with self._lock:
            done, total, at, rate = self._done, self._total, self._at, self._rate
        if at is None or total == 0:
            return ""
        unit, size = ("GB", 1e9) if total >= 1e9 else ("MB", 1e6)
        form = ".1f" if unit == "GB" else ".0f"
        amounts = f"{done / size:{form}} of {total / size:{form}} {unit}"
        text = f"{amounts} ({100 * done // total} %)"
        if done < total and now - at >= _SILENT_SECONDS:
            return f"{text}, nothing came for {now - at:.0f} s"
        if rate is None or rate < 1.0 or done >= total:
            return text
        shown = f"{rate / 1e6:.0f} MB/s" if rate >= 1e6 else f"{rate / 1e3:.0f} kB/s"
        return f"{text}, {shown}, {_span((total - done) / rate)} left"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
