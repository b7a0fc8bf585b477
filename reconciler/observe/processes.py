"""What /proc says of processes. What vanishes, or may not be read, between two looks is absent."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_DEAD = frozenset("ZXx")

HOST_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own one; its number is fixed in the kernel (PROC_PID_INIT_INO)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process at one look.

    `start_ticks`: clock ticks after boot (field 22 of /proc/PID/stat); with the pid it names one
    process for ever, where the pid alone may be given to another one. `state`: one letter, of the
    first thread. `threads`: more than one while others outlive the first.
    """

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int
    threads: int = 1

    @property
    def alive(self) -> bool:
        """Zombies are dead: they hold nothing but their number."""
        return self.state not in _DEAD or self.threads > 1

    def __str__(self) -> str:
        return f"{self.pid} ({self.name}, state {self.state})"


ProcessTable = Mapping[int, Process]


def read_process(pid: int) -> Process | None:
    """One process, zombies included; None where there is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses, and may hold some itself, spaces and newlines too.
    head, _, tail = stat.rpartition(b")")
    fields = tail.split()
    return Process(
        pid=pid,
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        threads=int(fields[17]),
    )


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far, all of its threads; 0 where there is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return 0.0
    fields = stat.rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_processes() -> ProcessTable:
    """Every process that can be seen. Blocks for some 15 µs a process."""
    found = (read_process(int(entry)) for entry in os.listdir(_PROC) if entry.isdigit())
    return {process.pid: process for process in found if process}


def environment_value(pid: int, variable: str) -> str | None:
    """A variable of the environment that a process was started with; children inherit it.

    None for one that has it not, has overwritten it (process titles do), is a zombie, or may not
    be read.
    """
    prefix = variable.encode() + b"="
    for entry in _environment(pid):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("utf-8", "replace")
    return None


def environment_of(pid: int) -> Mapping[str, str]:
    """All of it, as for `environment_value`; empty where that tells None."""
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in _environment(pid))
    return {name: value for name, is_pair, value in pairs if is_pair}


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def removed_files(pid: int, folder: str) -> frozenset[int]:
    """The inodes of files that a process has mapped or open, below a folder, that have gone.

    Nothing of one that may not be looked into. NFS gives what is still open another name instead.
    """
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "maps").read_text("utf-8", "replace").splitlines():
            fields = line.split(maxsplit=5)  # addresses, rights, offset, device, inode, path
            if len(fields) == 6 and _has_gone(fields[5], folder):
                found.add(int(fields[4]))
    with contextlib.suppress(OSError):
        for entry in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if _has_gone(os.readlink(entry), folder):
                    found.add(entry.stat().st_ino)
    return frozenset(found)


def _has_gone(path: str, folder: str) -> bool:
    if not path.startswith(f"{folder}/"):
        return False
    return path.endswith(" (deleted)") or os.path.basename(path).startswith(".nfs")


def boot_id() -> str:
    """Changes with every boot of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def pid_namespace(pid: int | None = None) -> str | None:
    """Pids mean something within one namespace only: `pid:[4026531836]`. Default: our own one.

    None for a process that is gone, or may not be looked into.
    """
    try:
        return os.readlink(_PROC / ("self" if pid is None else str(pid)) / "ns/pid")
    except OSError:
        return None


def age_seconds(process: Process) -> float:
    """How long ago it was started."""
    ticks = ticks_since_boot() - process.start_ticks
    return max(0.0, ticks / os.sysconf("SC_CLK_TCK"))


def ticks_since_boot() -> int:
    """Now, on the clock of `Process.start_ticks`."""
    seconds = float((_PROC / "uptime").read_text(encoding="ascii").split()[0])
    return int(seconds * os.sysconf("SC_CLK_TCK"))
