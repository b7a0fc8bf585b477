"""Which file each spawn writes to: its own, so that two processes of a model never mix their lines.

<data-dir>/logs/<model>@<number>.log    the newest spawn has the highest number
<data-dir>/logs/<model>.log             of releases before: what every spawn of the model printed
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from reconciler.apply.logs import log_path
from reconciler.plan.ids import ModelName

KEPT = 8
"""Logs of spawns that have ended, of a model: those of a crash loop, and of what was before it."""


def logs_of(folder: Path, model: ModelName) -> tuple[Path, ...]:
    """Those that are there, the oldest spawn first."""
    shared = log_path(folder, model)
    numbered = sorted(_numbered(shared), key=lambda each: each[0])
    return (*([shared] if shared.exists() else []), *(path for _, path in numbered))


def next_log(folder: Path, model: ModelName, in_use: Collection[str] = ()) -> Path:
    """Of the spawn that comes; at most one of a model at a time. One that somebody has removed is
    not made anew while its process lives."""
    shared = log_path(folder, model)
    taken = [number for number, _ in _numbered(shared)]
    number = 1 + max(taken, default=0)
    while str(path := shared.with_name(f"{shared.stem}@{number}.log")) in in_use:
        number += 1
    return path


def prune(folder: Path, model: ModelName, in_use: Collection[str], max_bytes: int) -> None:
    """Remove the oldest that nobody writes to any more. What is left of them are `KEPT` at most,
    and no more than so many bytes together, or the newest one alone."""
    ended = [path for path in logs_of(folder, model) if str(path) not in in_use]
    kept_bytes = 0
    for rank, path in enumerate(reversed(ended)):
        files = (path, path.with_name(f"{path.name}.1"))
        kept_bytes += sum(map(_size, files))
        if rank >= KEPT or (rank > 0 and kept_bytes > max_bytes):
            for file in files:
                with contextlib.suppress(OSError):
                    file.unlink()


def model_of(path: Path) -> str:
    """As it is written in the name of its log."""
    return path.stem.partition("@")[0]


def _numbered(shared: Path) -> Iterator[tuple[int, Path]]:
    """`@` stands in no model's part of a name."""
    for path in shared.parent.glob(f"{shared.stem}@*.log"):
        number = path.stem.rpartition("@")[2]
        if number.isdecimal():
            yield int(number), path


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
