"""A lock on a file that is there only while somebody holds or awaits it.

The lock is the kernel's, on the open file: a file that a killed process has left locks nobody out.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from reconciler.errors import Transient

_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.02
_NO_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(path: str) -> Iterator[None]:
    """Raises Transient where somebody holds it for a minute; OSError. Its folder must be there.

    Where the file system has no locks, everybody holds it.
    """
    until = time.monotonic() + _WAIT_SECONDS
    while (fd := _locked(path)) is None:
        if time.monotonic() > until:
            raise Transient(f"another process has held {path} for {_WAIT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.close(fd)


def _locked(path: str) -> int | None:
    """The open file. None: somebody else has it, or had it and took the file away."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError as exc:
        if exc.errno not in _NO_LOCKS:
            os.close(fd)
            raise
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    os.close(fd)
    return None
