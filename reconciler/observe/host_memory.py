"""The memory of this machine, or of the container that we are in, and what processes hold of it.

free = MemAvailable + SwapFree, bounded by what each cgroup above us may still take: its limit, less
what it uses, plus the pages of files in it, which are given back before anything is killed. The
kernel counts the same way (si_mem_available). Sources: proc(5); cgroup-v2.rst and cgroup-v1/
memory.rst in the kernel's documentation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.plan.memory import Room

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of one version of cgroups. `reclaimable`: lines of `memory.stat`."""

    limit: str
    usage: str
    reclaimable: tuple[str, ...]


_V2 = _Version("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable"))
_V1 = _Version(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


def read_room(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Room | None:
    """Some 100 µs. None where the kernel does not tell."""
    told = _lines(proc / "meminfo", unit=1024)
    total, available = told.get("MemTotal"), told.get("MemAvailable")
    if total is None or available is None:
        return None
    room = Room(
        total_bytes=total + told.get("SwapTotal", 0),
        free_bytes=available + told.get("SwapFree", 0),
    )
    for folder, version in _above_us(proc, cgroups):
        room = _within(room, folder, version)
    return room


def read_physical(proc: Path = _PROC) -> int | None:
    """All memory of the machine, in bytes, whatever a container may have of it."""
    return _lines(proc / "meminfo", unit=1024).get("MemTotal")


def held_by(pids: Iterable[int], proc: Path = _PROC) -> int:
    """Bytes that come back when these end: theirs alone, and no pages of files.

    What forked processes share is counted for each of them: rather too much than too little.
    """
    held = 0
    for pid in pids:
        told = _lines(proc / str(pid) / "status", unit=1024)
        held += told.get("RssAnon", 0) + told.get("RssShmem", 0)
    return held


def _within(room: Room, folder: Path, version: _Version) -> Room:
    """The room that is left by one cgroup's limit. Its own swap is left out, as it is rare."""
    limit, usage = _number(folder / version.limit), _number(folder / version.usage)
    if limit is None or usage is None or limit >= room.total_bytes:
        return room
    told = _lines(folder / "memory.stat")
    free = limit - usage + sum(told.get(name, 0) for name in version.reclaimable)
    return Room(total_bytes=limit, free_bytes=max(0, min(room.free_bytes, free, limit)))


def _above_us(proc: Path, cgroups: Path) -> Iterator[tuple[Path, _Version]]:
    """Each cgroup that bounds us, the innermost first. In a container without a namespace of its
    own the path may be the machine's: what is not there is left out."""
    for line in _text(proc / "self/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            root, version = cgroups / "memory", _V1
        elif hierarchy == "0":
            root, version = cgroups, _V2
        else:
            continue
        folder = root / path.lstrip("/")
        for each in (folder, *folder.parents):
            if not each.is_relative_to(root):
                break
            yield each, version


def _lines(path: Path, unit: int = 1) -> dict[str, int]:
    """`Name: 12 kB` or `name 12`, by name; `unit`: bytes of one."""
    told: dict[str, int] = {}
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            told[words[0].rstrip(":")] = int(words[1]) * unit
    return told


def _number(path: Path) -> int | None:
    """None also for `max`, which is no limit."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    """Empty for what is not there, or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
