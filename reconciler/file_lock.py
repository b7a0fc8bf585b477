"""Locks on open files: they end with their process, whatever becomes of the file's name.

A lock file's mere existence means nothing (gpustack#1621, #1882: a stale one blocks for ever).
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reconciler.errors import Transient

_RETRY_SECONDS = 0.1
_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0
_NO_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(path: Path, *, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Hold the lock at `path` alone; waits for it. Raises Transient when cancelled."""
    fd = _opened(path)
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
    fd = _opened(path)
    try:
        yield try_lock(fd)
    finally:
        os.close(fd)


@contextmanager
def held_without_trace(path: Path) -> Iterator[None]:
    """The file is there only while somebody holds or awaits it. Its folder must be there.

    Raises Transient where somebody holds it for a minute; OSError. Where the file system has no
    locks, everybody holds it.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while (fd := _locked(path)) is None:
        if time.monotonic() > until:
            raise Transient(f"another process has held {path} for {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the lock of an open file if nobody has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(path: Path, fd: int) -> bool:
    """Whether the open file still has this name: who held it before may have taken it away."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(fd))
    return False


def _locked(path: Path) -> int | None:
    """The open file. None: somebody else has it, or had it and took the file away."""
    fd = _opened(path)
    try:
        is_ours = try_lock(fd)
    except OSError as exc:
        is_ours = exc.errno in _NO_LOCKS
        if not is_ours:
            os.close(fd)
            raise
    if is_ours and is_at(path, fd):
        return fd
    os.close(fd)
    return None


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
