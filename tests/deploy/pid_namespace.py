"""What lives in a pid namespace that `unshare --fork` has made, numbered as this machine does."""

import os
from contextlib import suppress
from pathlib import Path


def first_below(pid: int) -> int | None:
    """Its process 1. `pid`: of `unshare`. None: there is none yet, or it has ended."""
    with suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        return int(children[0]) if children else None
    return None


def namespace_of(pid: int) -> str | None:
    """None: it has ended."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return None


def members_of(namespace: str) -> list[int]:
    """All that live in it."""
    pids = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [pid for pid in pids if namespace_of(pid) == namespace]
