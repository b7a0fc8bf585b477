"""A file that is there whole or not at all, and stays through a power cut."""

import errno
import os
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"
"""What the name of a file that is being written ends with; its writer's death leaves it there."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """A reader sees the old file or this one, which is on the disk when this returns.

    One writer of a path at a time. Its folder must be there. Where it fails, the old one stands.
    `mode`: before the umask. Raises OSError.
    """
    partial = path.with_name(path.name + PARTIAL)
    with suppress(FileNotFoundError):
        partial.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    sync_folder(path.parent)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make it, and its parents, and let them survive a power cut. `mode`: its own, before the
    umask. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(mode=mode if path is missing[0] else 0o777, exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Names in it last through a power cut. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def cause_and_cure(exc: OSError, folder: Path) -> str:
    """What a disk says, and what an operator has to do about it."""
    cause = (exc.strerror or str(exc)).lower()
    if exc.errno in _NO_ROOM:
        return f"{cause}; free some in {folder}"
    if exc.errno in _IN_THE_WAY:
        return f"{cause}; take away what stands in the way at {folder}"
    return f"{cause}; make {folder} writable"
