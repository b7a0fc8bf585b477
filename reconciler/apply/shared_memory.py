"""POSIX shared memory that a killed spawn leaves in /dev/shm, where it fills memory until a reboot.

Engines of several processes talk through it (vLLM: some 160 MiB), and only a clean end removes it.
Ours is what a proven process of the spawn had mapped, under a name that a library makes up anew for
each run, and what nobody has mapped any more. Name and inode together prove that it is still that
one, to an agent after this one, too.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_FOLDER = Path("/dev/shm")
_MADE_UP = ("psm_", "sem.mp-", "torch_", "nccl-", "pym-")
"""By Python's multiprocessing, torch, NCCL and RCCL. A name that somebody chose may be meant to
stay."""


def mapped_by(pids: Iterable[int]) -> frozenset[int]:
    """The inodes of all shared memory that these processes have mapped just now."""
    return frozenset(inode for pid in pids for inode in _mapped(pid))


def left_by(pids: Iterable[int]) -> Mapping[str, int]:
    """What these processes have mapped just now and will not take along: inodes by their names."""
    inodes = mapped_by(pids)
    return {name: inode for name, inode in _ours().items() if inode in inodes} if inodes else {}


def remove_unused(segments: Mapping[str, int]) -> tuple[str, ...]:
    """Remove those of them that are still there, and mapped by nobody. `segments`: of `left_by`.

    Returns their names. Blocks for a look at every process, if there are any.
    """
    if not segments or not (found := dict(_ours().items() & segments.items())):
        return ()
    used = mapped_by(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    removed = []
    for name, inode in found.items():
        if inode not in used:
            with contextlib.suppress(OSError):
                (_FOLDER / name).unlink()
                removed.append(name)
    return tuple(sorted(removed))


def _ours() -> Mapping[str, int]:
    """By owner and name."""
    found = ((entry.name, _status(entry)) for entry in _entries())
    return {
        name: status.st_ino
        for name, status in found
        if status is not None and status.st_uid == os.getuid()
    }


def _entries() -> Iterable[Path]:
    try:
        return [entry for entry in _FOLDER.iterdir() if entry.name.startswith(_MADE_UP)]
    except OSError:
        return []


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=False)
    except OSError:
        return None


def _mapped(pid: int) -> Iterable[int]:
    """`7f25-7f26 rw-s 00000000 00:1b 1074 /dev/shm/psm_7bb31c95`: the inode, since a semaphore is
    mapped under a name that it has no more."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        if b" /dev/shm/" in line:
            yield int(line.split(maxsplit=5)[4])
