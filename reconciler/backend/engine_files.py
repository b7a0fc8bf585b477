"""Which very files an engine is: what is compared to see that it was replaced."""

import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

_SETTLED_NANOSECONDS = 2_000_000_000
"""Of a file that changed later than this before it was read, more may come. FAT's clock has steps
of two seconds, and so has a program that copies its files one after another."""

_SCRIPT_BYTES = 4096
_METADATA = ("{}-*.dist-info/METADATA", "{}.egg-info/PKG-INFO", "{}-*.egg-info/PKG-INFO")
_PATHS = re.compile(r"(?<![\w.$}-])/[^\s\"'`$;&|<>(){}]+")


@dataclass(frozen=True, slots=True)
class Stamp:
    """One file, a link followed to its end. `identity`: device, inode, size, mtime in ns; None: it
    is not there, or cannot be reached."""

    path: str
    identity: tuple[int, int, int, int] | None


Stamps = tuple[Stamp, ...]


def stamps(paths: Iterable[str]) -> Stamps:
    return tuple(Stamp(path, _identity(path)) for path in dict.fromkeys(paths))


def beginning(path: str) -> bytes:
    """The first bytes. OSError also for what is no regular file: an open of a named pipe waits for
    one who writes."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return os.read(fd, _SCRIPT_BYTES)
    finally:
        os.close(fd)


def programs(path: str) -> tuple[str, ...]:
    """The file itself; of a script also the programs that it names by their absolute path: it stays
    as it is where what it calls is replaced."""
    try:
        text = beginning(path)
    except OSError:
        return (path,)
    if not text.startswith(b"#!"):
        return (path,)
    body = text.partition(b"\n")[2].decode("utf-8", "replace")
    called = [each for each in _PATHS.findall(body) if os.path.isfile(each)]
    return (path, *(each for each in called if os.access(each, os.X_OK)))


def installed(name: str, folders: Iterable[str]) -> Distribution | None:
    """The first package of that name in `folders` whose metadata can be read without waiting, as
    that of a named pipe cannot."""
    for found in distributions(name=name, path=list(folders)):
        files = metadata_files(name, found)
        if files and all(os.path.isfile(file) and os.access(file, os.R_OK) for file in files):
            return found
    return None


def metadata_files(name: str, distribution: Distribution) -> tuple[str, ...]:
    """Of an installed package. Another version of it has another file."""
    folder, stem = Path(str(distribution.locate_file(""))), name.replace("-", "_")
    return tuple(sorted(str(file) for each in _METADATA for file in folder.glob(each.format(stem))))


def just_written(paths: Iterable[str], *, since_ns: int) -> bool:
    """Whether one of them may have changed after it was read. `since_ns`: when that began, on the
    wall clock. By ctime: a copy may keep the mtime of its original."""
    return any(_changed_ns(path) > since_ns - _SETTLED_NANOSECONDS for path in paths)


def _identity(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_ctime_ns
    except (OSError, ValueError):
        return 0
