"""A folder with the files of a system, and commands that run in it as in a container of its own.

Each has its own mounts and its own process numbers: what it starts ends with it.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A file or folder of this machine. `target`: a path inside."""

    source: Path
    target: str
    writable: bool = False


def inside(
    root: Path,
    words: Sequence[str],
    *,
    env: Mapping[str, str],
    user: str = "0",
    folder: str = "/",
    mounts: Sequence[Mount] = (),
) -> list[str]:
    """The command line that runs these words in there, the first of them as process 1.

    Args:
        user: UID or UID:GID, in numbers.
        mounts: Their targets must be there.
    """
    steps = [
        "set -e",
        "mount --make-rprivate /",
        *(_mount(root, mount) for mount in mounts),
        f"mount -t proc proc {shlex.quote(f'{root}/proc')}",
        f"mount --rbind /dev {shlex.quote(f'{root}/dev')}",
        f"mount -t tmpfs -o mode=1777 shm {shlex.quote(f'{root}/dev/shm')}",
        'exec "$@"',
    ]
    uid, gid = ids_of(user)
    script = 'cd "$1" && shift && exec "$@"'
    return [
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(steps)),
        *("sh", "chroot", f"--userspec={uid}:{gid}", f"--groups={gid}", str(root)),
        *("/usr/bin/env", "-i", *(f"{name}={value}" for name, value in _defaults(env).items())),
        *("/bin/sh", "-c", script, "sh", folder, *words),
    ]


def ids_of(user: str) -> tuple[int, int]:
    """Of `UID` or `UID:GID`; the group of a user alone has its number."""
    uid, _, gid = user.partition(":")
    return int(uid), int(gid or uid)


def _defaults(env: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": _PATH, **env}


def _mount(root: Path, mount: Mount) -> str:
    target = shlex.quote(f"{root}{mount.target}")
    bound = f"mount --bind {shlex.quote(str(mount.source))} {target}"
    return bound if mount.writable else f"{bound} && mount -o remount,bind,ro {target}"
