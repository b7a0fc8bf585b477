"""Shared memory in /dev/shm: what backends of the agent under test made, and strangers'."""

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.observe.processes import ticks_since_boot

_FOLDER = Path("/dev/shm")
_PREFIX = "psm_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """`nonce`: of the spawn that made it. `born_ticks`: after boot."""

    path: Path
    nonce: str
    born_ticks: int

    def __str__(self) -> str:
        return f"{self.path} of spawn {self.nonce}"


def segments(marker: str) -> list[Segment]:
    """`marker`: begins the TMPDIR of the agent, and so of the stand-in, which writes it there."""
    found = []
    for path in _FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            folder = path.read_bytes().rstrip(b"\0").decode("utf-8", "replace")
            age = time.time() - path.stat().st_mtime
            if folder.startswith(marker):
                born = ticks_since_boot() - int(age * os.sysconf("SC_CLK_TCK"))
                nonce = Path(folder).name.removeprefix("xgen-")
                found.append(Segment(path=path, nonce=nonce, born_ticks=born))
    return found


def remove(marker: str) -> None:
    for each in segments(marker):
        each.path.unlink(missing_ok=True)


@dataclass
class ForeignSegments:
    """Of a stranger that is gone: under such a name, mapped by nobody, and not ours to remove."""

    made: list[tuple[Path, int]] = field(default_factory=list)

    def begin(self) -> None:
        for _ in range(3):
            path = _FOLDER / f"{_PREFIX}{os.urandom(4).hex()}"
            path.write_bytes(b"a stranger's")
            self.made.append((path, path.stat().st_ino))

    def harmed(self) -> list[str]:
        return [
            f"a stranger's shared memory {path} is gone"
            for path, inode in self.made
            if not path.exists() or path.stat().st_ino != inode
        ]

    def end(self) -> None:
        for path, _ in self.made:
            path.unlink(missing_ok=True)
