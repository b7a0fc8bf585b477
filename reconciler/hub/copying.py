"""Copies one open file into another as cheaply as the file systems allow: shared blocks first."""

import errno
import fcntl
import os
from collections.abc import Callable

from reconciler.hub.reserve import reserve

_FICLONE = 0x40049409
_CHUNK_BYTES = 4 << 20
_CANNOT = (
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.EPERM,
    errno.EBADF,
    errno.ETXTBSY,
)


def copy_file(
    source: int,
    target: int,
    size_bytes: int,
    *,
    begin: int = 0,
    on_bytes: Callable[[int], None],
    before_chunk: Callable[[int], None],
) -> int:
    """Copy `size_bytes` and return how many were there. Raises OSError.

    `begin`: so many are in the target already. `before_chunk`: called with the size of each that is
    copied, not where blocks are shared; it may wait, or raise to end the copy.
    """
    if _cloned(source, target):
        on_bytes(size_bytes)
        return size_bytes
    reserve(target, size_bytes)
    done = begin
    in_kernel = True
    while done < size_bytes:
        want = min(_CHUNK_BYTES, size_bytes - done)
        before_chunk(want)
        copied = _copy_in_kernel(source, target, want, done) if in_kernel else 0
        if copied == 0:  # not possible here, or a file system that says 0 for "cannot"
            in_kernel = False
            chunk = os.pread(source, want, done)
            copied = os.pwrite(target, chunk, done) if chunk else 0
        if copied == 0:
            break
        done += copied
        on_bytes(done)
    return done


def _cloned(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as exc:
        if exc.errno not in _CANNOT:
            raise
        return False
    return True


def _copy_in_kernel(source: int, target: int, count: int, offset: int) -> int:
    try:
        return os.copy_file_range(source, target, count, offset, offset)
    except OSError as exc:
        if exc.errno not in _CANNOT:
            raise
        return 0
