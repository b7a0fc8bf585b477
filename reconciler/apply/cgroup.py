"""A control group of its own for each spawn, where cgroup v2 lets us make one (R10).

<our own group>/xgen-<nonce>    no controller is enabled in it: it counts and limits nothing

All that the spawn's processes start is born in it, whatever session or environment they give
themselves; and one write ends them all at once, those too that are just being born (`cgroup.kill`,
Linux 5.14). Where there is no such group, /proc alone tells who is ours. Source: cgroup-v2.rst.
"""

import contextlib
import os
import re
from pathlib import Path

from reconciler.plan.ids import Nonce

_PROC = Path("/proc")
_MEMBERS = "cgroup.procs"
_OCTAL = re.compile(r"\\([0-7]{3})")


def own_group(proc: Path = _PROC) -> Path | str:
    """The folder of the group that we are in, where groups can be made in it; or why not."""
    try:
        groups = (proc / "self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError as exc:
        return f"{exc.filename} cannot be read: {(exc.strerror or str(exc)).lower()}"
    own = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    mounted = next((place for line in mounts if (place := _mounted(line))), None)
    if own is None or mounted is None:
        return "no cgroup v2 is mounted"
    root, folder = mounted
    if root != "/" and own != root and not own.startswith(f"{root}/"):
        return f"our group, {own}, is not below {folder}"
    ours = folder / own.removeprefix("" if root == "/" else root).lstrip("/")
    if ".." in ours.parts or not ours.is_dir():
        return f"our group, {own}, is not below {folder}"
    for path in (ours, ours / _MEMBERS):
        if not os.access(path, os.W_OK):
            return f"{path} is not writable"
    return ours


def group_of(nonce: Nonce) -> Path | None:
    """Where the group of a spawn will be; None: there can be none."""
    ours = own_group()
    return ours / _name(nonce) if isinstance(ours, Path) else None


def make(group: Path) -> bool:
    """False: there can be none after all."""
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return False
    return True


def procs_of(group: Path) -> Path:
    """To which a pid is written to move it there; 0 is who writes."""
    return group / _MEMBERS


def enter(group: Path, pid: int) -> None:
    """Move a process there that has just been started, if that can be; what it has started by then
    stays where it was."""
    with contextlib.suppress(OSError):
        procs_of(group).write_text(str(pid), encoding="ascii")


def leave(group: Path) -> None:
    """Remove it if nobody lives there."""
    with contextlib.suppress(OSError):
        group.rmdir()


def members(group: Path) -> frozenset[int]:
    """The pids of who lives in it, or in a group below it; zombies do not."""
    found: set[int] = set()
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError, ValueError):
            text = (Path(folder) / _MEMBERS).read_text(encoding="ascii")
            found |= {int(word) for word in text.split()}
    return frozenset(found - {0})  # 0: of a pid namespace that we cannot see


def died_in(group: Path, pid: int, proc: Path = _PROC) -> bool:
    """Whether this zombie was in it: that is told until it is reaped, its environment is not."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return False
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "")
    return Path(own.removesuffix(" (deleted)")).name == group.name


def kill(group: Path) -> None:
    """SIGKILL to all at once, where the kernel can."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", encoding="ascii")


def recorded(nonce: Nonce, group: str | None) -> Path | None:
    """The group that a record names, if its name proves whose it is."""
    return Path(group) if group is not None and Path(group).name == _name(nonce) else None


def remove(group: Path) -> str | None:
    """Once nobody lives in it. Returns why it cannot be, as a sentence; None: it is gone."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            Path(folder).rmdir()
        except FileNotFoundError:
            continue
        except OSError as exc:
            cause = (exc.strerror or str(exc)).lower()
            return f"cannot remove {folder}: {cause}; remove it by hand (rmdir)"
    return None


def _mounted(line: str) -> tuple[str, Path] | None:
    """Of a line of mountinfo: the group that is the root of a mount of cgroup v2, and where."""
    fields, _, filesystem = line.partition(" - ")
    if not filesystem.startswith("cgroup2 "):
        return None
    _, _, _, root, folder, *_ = fields.split(" ")
    return _unescaped(root), Path(_unescaped(folder))


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def _name(nonce: Nonce) -> str:
    return f"xgen-{nonce}"
