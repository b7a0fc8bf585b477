"""A clock that jumps: the system's, and what a file says beside it."""

import mmap
import struct
import time
from datetime import UTC, datetime
from pathlib import Path

_OFFSETS = struct.Struct("dd")
_SLACK_SECONDS = 0.05


class JumpingClock:
    """The agent's clock (reconciler/loop/clock.py). The monotonic one only jumps ahead, as that of
    a machine that slept; the wall's is set both ways."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._offsets = mmap.mmap(file.fileno(), _OFFSETS.size)
        self._wall = self._distance()

    def monotonic(self) -> float:
        return time.monotonic() + self._read()[0]

    def wall(self, moment: float) -> str:
        """The same moment reads the same until one of the clocks is set."""
        distance = self._distance()
        if abs(distance - self._wall) > _SLACK_SECONDS:
            self._wall = distance
        return datetime.fromtimestamp(moment + self._wall, UTC).isoformat(timespec="milliseconds")

    def _distance(self) -> float:
        return time.time() + self._read()[1] - self.monotonic()

    def _read(self) -> tuple[float, float]:
        ahead, wall = _OFFSETS.unpack(self._offsets[:])
        return ahead, wall


class ClockFile:
    """The other side: who lets it jump."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ahead = self._wall = 0.0
        self._write()

    def jump_ahead(self, seconds: float) -> None:
        self._ahead += seconds
        self._write()

    def set_wall(self, seconds: float) -> None:
        """So far from the true time."""
        self._wall = seconds
        self._write()

    def _write(self) -> None:
        self.path.touch()
        with self.path.open("r+b") as file:
            file.write(_OFFSETS.pack(self._ahead, self._wall))
