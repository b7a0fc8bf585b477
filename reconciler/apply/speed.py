"""How fast a download is, and when it will be done (PURE: the clock is handed in)."""

import math
import threading

from reconciler.status import Doing, Progress

_SMOOTHED_SECONDS = 5.0
_STEP_SECONDS = 0.5
_SILENT_SECONDS = 10.0
_STANDSTILL = 1.0
"""Bytes a second; no time left is reckoned from less."""


class Speed:
    """Smoothed over some seconds. Thread-safe: one thread notes, another asks.

    A silence counts as it grows. What comes first, at the beginning or after a long silence, begins
    the measuring and is no part of it: the time left would else be days, for a moment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = 0
        self._total = 0
        self._at = 0.0
        self._step: tuple[float, int] = (0.0, 0)
        self._rate: float | None = None
        self._coming = False

    def note(self, done: int, total: int, now: float) -> None:
        """So many bytes are there; fewer than before where a file begins anew."""
        done = min(done, total)
        with self._lock:
            if total != self._total:
                self._total, self._rate, self._coming = total, None, False
                self._step = (now, done)
            elif done == self._done:
                return
            elif done < self._done:
                self._step = (now, done)
            elif not self._coming or now - self._at >= _SILENT_SECONDS:
                self._rate, self._coming = None, True
                self._step = (now, done)
            elif now - self._step[0] >= _STEP_SECONDS:
                self._rate = self._smoothed(done, now)
                self._step = (now, done)
            self._done, self._at = done, now

    def progress(self, doing: Doing, now: float) -> Progress | None:
        """None before it is known how much is to come."""
        with self._lock:
            done, total, silent = self._done, self._total, now - self._at
            rate = self._rate if done == total else self._smoothed(done, now)
        if total == 0:
            return None
        if done == total:
            left, silent = 0.0, 0.0
        elif silent >= _SILENT_SECONDS:
            left, rate = None, 0.0
        else:
            left = (total - done) / rate if rate and rate >= _STANDSTILL else None
        return Progress(
            doing=doing,
            done_bytes=done,
            total_bytes=total,
            bytes_per_second=None if rate is None else round(rate, 1),
            seconds_left=None if left is None else round(left, 1),
            silent_seconds=round(silent, 1) if silent >= _SILENT_SECONDS else None,
        )

    def _smoothed(self, done: int, now: float) -> float | None:
        """The rate with what has come since the last step, and the time that it took."""
        began, before = self._step
        if now - began < _STEP_SECONDS or (self._rate is None and done == before):
            return self._rate
        rate = (done - before) / (now - began)
        if self._rate is None:
            return rate
        weight = 1.0 - math.exp((began - now) / _SMOOTHED_SECONDS)
        return self._rate + weight * (rate - self._rate)


def told(progress: Progress) -> str:
    """`1.2 of 4.3 GiB (28 %), 210 MiB/s, 15 s left`, for operators."""
    done, total, rate = progress.done_bytes, progress.total_bytes, progress.bytes_per_second
    unit, size = ("GiB", 2**30) if total >= 2**30 else ("MiB", 2**20)
    amounts = f"{done / size:.1f} of {total / size:.1f} {unit}"  # rounder ones belie the percent
    text = f"{_PREFIXES[progress.doing]}{amounts} ({100 * done // total} %)"
    if progress.silent_seconds is not None:
        return f"{text}, nothing came for {progress.silent_seconds:.0f} s"
    if rate is None or progress.seconds_left is None or done == total:
        return text
    shown = f"{rate / 2**20:.0f} MiB/s" if rate >= 2**20 else f"{rate / 2**10:.0f} KiB/s"
    return f"{text}, {shown}, {_span(progress.seconds_left)} left"


_PREFIXES = {
    Doing.FETCH: "",
    Doing.CHECK: "checks files that look changed, ",
    Doing.IMPORT: "imports it into the hub, ",
}


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
