"""Files that this agent alone writes, for the next one: there again, whatever is done to them."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from reconciler.atomic_file import cause_and_cure, make_folder, replace_file

MAX_BYTES = 16 * 1024 * 1024
"""Of a file of the agent's own. A spec comes from a file of 1 MiB at most."""
MODE = 0o600
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
Look = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesKept:
    """What a look came to. `problems`: what is not on disk, as sentences. `rewritten`: what had
    been removed or changed, and is there again, as sentences."""

    problems: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class OwnFile:
    """What is to be in a file. `look`: how the file looked when that was seen in it last; empty:
    not yet."""

    path: Path
    content: bytes
    look: Look = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises OSError or ValueError, as `read_regular` does."""
        look = look_at(path)  # first: what is changed while it is read is seen at the next look
        return cls(path=path, content=read_regular(path), look=look)

    def write(self) -> None:
        """With its folder. Raises OSError."""
        make_folder(self.path.parent, mode=0o700)
        replace_file(self.path, self.content, mode=MODE)

    def harm(self) -> str | None:
        """What was done to it, as a clause, if that takes it from the next agent; one call to the
        kernel where nothing was. None: a touch, or a backup's link, did none."""
        try:
            status = self.path.lstat()
            if (look := _look_of(status)) == self.look:
                return None
            content = read_regular(self.path, max_bytes=max(MAX_BYTES, len(self.content)))
        except (FileNotFoundError, NotADirectoryError):
            return "was gone"
        except (OSError, ValueError) as exc:
            return f"could not be read: {exc}"
        if stat.S_IMODE(status.st_mode) != MODE:
            return f"had mode {stat.S_IMODE(status.st_mode):04o}"
        if content != self.content:
            return "was changed"
        self.look = look
        return None


class OwnFiles:
    """Some of them, for one thread at a time. `need`: what it is to lack one, as a sentence."""

    def __init__(self, need: str) -> None:
        self._need = need
        self._files: dict[Path, OwnFile] = {}

    def take(self, file: OwnFile) -> None:
        """It was read, and is to stay so."""
        self._files[file.path] = file

    def write(self, path: Path, content: bytes) -> None:
        """Whole or not at all, and on the disk when it returns. Raises OSError."""
        file = OwnFile(path=path, content=content)
        file.write()
        self._files[path] = file

    def remove(self, path: Path) -> None:
        """Raises OSError."""
        path.unlink(missing_ok=True)
        self._files.pop(path, None)

    def keep(self) -> FilesKept:
        """Write anew what somebody removed or changed. What fails is tried at the next look."""
        problems, rewritten = [], []
        for file, harm in self._harmed():
            try:
                file.write()
            except OSError as exc:
                why = cause_and_cure(exc, file.path.parent)
                problems.append(f"{file.path} {harm}, and cannot be written: {why}; {self._need}")
            else:
                rewritten.append(
                    f"{file.path} {harm}, and is written anew; without it {self._need}"
                )
        return FilesKept(problems=tuple(problems), rewritten=tuple(rewritten))

    def _harmed(self) -> Iterator[tuple[OwnFile, str]]:
        for file in self._files.values():
            if (harm := file.harm()) is not None:
                yield file, harm


def look_at(path: Path) -> Look:
    """Otherwise after whatever was done to a file, or to the folders that it lies in. Raises
    OSError."""
    return _look_of(path.lstat())


def _look_of(status: os.stat_result) -> Look:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def read_regular(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Raises OSError or ValueError, which says what stands there, or that it is larger than
    `max_bytes`. Never waits, as the opening of a named pipe does."""
    _need_regular(path.lstat())  # first: of a link or a socket an open says something else
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(path, flags)
    try:
        _need_regular(os.fstat(file))
        with os.fdopen(file, "rb", closefd=False) as stream:
            content = stream.read(max_bytes + 1)
    finally:
        os.close(file)
    if len(content) > max_bytes:
        raise ValueError(f"it is larger than {max_bytes >> 20} MiB")
    return content


def _need_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        raise ValueError(f"it is no regular file but {kind}")
