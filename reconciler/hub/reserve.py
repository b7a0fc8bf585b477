"""Room for a whole file, taken before its bytes come."""

import ctypes
import errno
import os

_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_libc = ctypes.CDLL(None, use_errno=True)


def reserve(fd: int, size_bytes: int) -> None:
    """Give the file this size, and its blocks where the file system can. Raises OSError: no room.

    Not by posix_fallocate: where the file system cannot (NFSv3), that writes to every block.
    """
    os.ftruncate(fd, size_bytes)
    if size_bytes == 0:
        return
    done = _libc.fallocate(fd, 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes))
    if done != 0 and (cause := ctypes.get_errno()) not in _CANNOT:
        raise OSError(cause, os.strerror(cause))
