"""A file that is there whole or not at all, and stays through a power cut."""

import os
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"
"""What the name of a file that is being written ends with; its writer's death leaves it there."""


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
