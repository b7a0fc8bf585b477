"""Locks on open files: they end with their process, whatever becomes of the file's name.

A lock file's mere existence means nothing (gpustack#1621, #1882: a stale one blocks for ever).
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import Transient

_RETRY_SECONDS = 0.1


@contextmanager
def held(path: Path, *, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold the lock at `path` alone; waits for it. Raises Transient when cancelled."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while not try_lock(fd):
            if cancelled():
                raise Transient("cannot wait for another fetch of the same files: not wanted now")
            time.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(fd)


@contextmanager
def held_now(path: Path) -> Iterator[bool]:
    """Hold the lock at `path` if nobody has it, and say so; never waits."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield try_lock(fd)
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the lock of an open file if nobody has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
