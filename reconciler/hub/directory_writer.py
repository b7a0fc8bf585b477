"""Writes to a hub in a folder: a temporary name beside the place, fsync, one rename."""

import errno
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reconciler.atomic_file import make_folder, sync_folder
from reconciler.errors import Transient
from reconciler.file_lock import held_without_trace
from reconciler.hub.catalog import LIMIT_BYTES
from reconciler.hub.copying import copy_file
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.local_files import read_block
from reconciler.hub.objects import checked_prefix
from reconciler.hub.writable import Stored, Unfinished, Watch

_BLOCK_BYTES = 4 * 1024 * 1024
_TRIES = 100
_TEMPORARY = ".xgen-partial-"
"""Begins the names of what is being written. Hidden, so that no reader takes it for a file."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LOCK = f".xgen/{_TEMPORARY}lock"
"""A killed writer's is removed with what else it left half done."""


class _Overtaken(Exception):
    """What was seen is not there any more."""


class DirectoryWriter:
    """A `WritableHub` in a folder, which must be there already: it may be a mount.

    Links inside the hub are read through; nothing is written or removed through one that leads out.
    """

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self._root = root
        self._reader = DirectoryStore(root)

    def close(self) -> None:
        return

    def prefixes(self) -> tuple[str, ...]:
        return self._reader.prefixes()

    def stored(self, prefix: str) -> tuple[Stored, ...]:
        return tuple(
            Stored(key=key, size_bytes=status.st_size, modified_at=status.st_mtime)
            for key, status in self._entries(prefix)
            if not _is_temporary(key)
        )

    def load(self, prefix: str, key: str, limit_bytes: int) -> bytes:
        with self._opened(prefix, key) as file:
            return file.read(limit_bytes)

    def read(self, prefix: str, key: str) -> Iterator[bytes]:
        with self._opened(prefix, key) as file:
            while block := file.read(_BLOCK_BYTES):
                yield block

    def save(self, prefix: str, key: str, content: bytes) -> None:
        with self._writing(prefix, key) as target:
            _write_all(target, content)

    def swap(self, prefix: str, key: str, content: bytes, seen: bytes | None) -> bool:
        """Alone, and looked at again afterwards: not every file system shares its locks."""
        with self._locked(prefix):
            try:
                with self._writing(prefix, key) as target:
                    _write_all(target, content)
                    os.fsync(target)
                    if self._content(prefix, key) != seen:
                        raise _Overtaken
            except _Overtaken:
                return False
            return self._content(prefix, key) == content

    def upload(self, prefix: str, key: str, source: BinaryIO, size_bytes: int, watch: Watch) -> int:
        """Shared blocks where the file system has them. The CRC-32 is of what can be read back."""
        with self._writing(prefix, key) as target:
            copied = _copy(source, target, size_bytes, watch)
            if copied != size_bytes:
                raise Transient(f"{source.name} became shorter meanwhile")
            crc32, at = 0, 0
            while block := os.pread(target, _BLOCK_BYTES, at):
                watch.check()
                crc32, at = zlib.crc32(block, crc32), at + len(block)
            return crc32

    def holds(self, stored: Stored, prefix: str, source: BinaryIO, watch: Watch) -> bool:
        with self._opened(prefix, stored.key) as file:
            while True:
                watch.check()
                ours, theirs = read_block(source, _BLOCK_BYTES), file.read(_BLOCK_BYTES)
                watch.on_bytes(len(ours))
                if ours != theirs:
                    return False
                if not ours:
                    return True

    def delete(self, prefix: str, key: str) -> None:
        """Folders that are empty then go too, with the prefix's own."""
        with self._explaining(f"cannot remove {prefix}/{key} from {self.location}"):
            root, bare = self._real_root(), checked_prefix(prefix)
            folder = os.path.dirname(os.path.join(root, bare, key))
            if os.path.realpath(folder) != folder:
                raise Transient("a link leads there; what it leads to may be another model's")
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(os.path.join(root, bare, key))
            with suppress(OSError):  # until one is not empty
                while folder != os.path.dirname(os.path.join(root, bare)):
                    os.rmdir(folder)
                    folder = os.path.dirname(folder)

    def unfinished(self, prefix: str) -> tuple[Unfinished, ...]:
        return tuple(
            Unfinished(key=key, started_at=status.st_mtime)
            for key, status in self._entries(prefix)
            if _is_temporary(key)
        )

    def discard(self, prefix: str, unfinished: Unfinished) -> None:
        self.delete(prefix, unfinished.key)

    def _entries(self, prefix: str) -> list[tuple[str, os.stat_result]]:
        with self._explaining(f"cannot list {checked_prefix(prefix)} in {self.location}"):
            folder = os.path.join(self._real_root(), prefix)
            return sorted(_below(folder, "")) if os.path.isdir(folder) else []

    @contextmanager
    def _opened(self, prefix: str, key: str) -> Iterator[BinaryIO]:
        with self._explaining(f"cannot read {prefix}/{key} in {self.location}"):
            path = os.path.join(self._real_root(), checked_prefix(prefix), key)
            self._check_inside(path)
            with open(path, "rb", buffering=0) as file:
                yield file

    def _content(self, prefix: str, key: str) -> bytes | None:
        with self._explaining(f"cannot read {prefix}/{key} in {self.location}"):
            with (
                suppress(FileNotFoundError),
                open(Path(self._real_root(), prefix, key), "rb") as file,
            ):
                return file.read(LIMIT_BYTES + 1)
            return None

    @contextmanager
    def _locked(self, prefix: str) -> Iterator[None]:
        """One writer of the prefix at a time, as far as the file system shares its locks."""
        with ExitStack() as stack:
            with self._explaining(f"cannot write {prefix} to {self.location}"):
                path = os.path.join(self._real_root(), checked_prefix(prefix), _LOCK)
                self._check_inside(path)
                make_folder(Path(path).parent)
                stack.enter_context(held_without_trace(Path(path)))
            yield

    @contextmanager
    def _writing(self, prefix: str, key: str) -> Iterator[int]:
        """A file that appears under its name, whole and for good, when the block ends well."""
        with self._explaining(f"cannot write {prefix}/{key} to {self.location}"):
            path = os.path.join(self._real_root(), checked_prefix(prefix), key)
            self._check_inside(path)
            folder = os.path.dirname(path)
            temporary = os.path.join(folder, _TEMPORARY + secrets.token_hex(8))
            fd = _created(temporary)
            try:
                yield fd
                os.fsync(fd)
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            finally:
                os.close(fd)
            with suppress(FileNotFoundError):  # somebody has removed it already
                sync_folder(Path(folder))

    def _real_root(self) -> str:
        try:
            root = os.path.realpath(self._root, strict=True)
        except OSError as exc:
            raise Transient(f"{exc.strerror}; is it mounted?") from exc
        if not os.path.isdir(root):
            raise Transient("it is no directory")
        return root

    def _check_inside(self, path: str) -> None:
        root = self._real_root()
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise Transient("its link leads out of the hub")

    @contextmanager
    def _explaining(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Transient as exc:
            raise Transient(f"{doing}: {exc}") from exc
        except OSError as exc:
            room = "; make room there, `hub gc` frees what old pushes take"
            hint = room if exc.errno in _NO_ROOM else ""
            raise Transient(f"{doing}: {exc.strerror}{hint}") from exc


def _below(folder: str, key: str) -> Iterator[tuple[str, os.stat_result]]:
    """All files, and links as what they are: what a link leads to may be another model's.

    Others write meanwhile: what is gone when we come to it was not there.
    """
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, f"{key}{entry.name}/")
            else:
                with suppress(FileNotFoundError):
                    yield f"{key}{entry.name}", _status(entry)


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    """A link to a file has the file's size; one that dangles, its own."""
    with suppress(FileNotFoundError):
        status = entry.stat()
        if stat.S_ISREG(status.st_mode):
            return status
    return entry.stat(follow_symlinks=False)


def _copy(source: BinaryIO, target: int, size_bytes: int, watch: Watch) -> int:
    told = 0

    def on_bytes(done: int) -> None:
        nonlocal told
        watch.on_bytes(done - told)
        told = done

    return copy_file(
        source.fileno(),
        target,
        size_bytes,
        on_bytes=on_bytes,
        before_chunk=lambda _count: watch.check(),
    )


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _is_temporary(key: str) -> bool:
    return key.rpartition("/")[2].startswith(_TEMPORARY)


def _created(path: str) -> int:
    """A new file, open. Its folder is made, again if somebody removes it as empty meanwhile."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            make_folder(Path(path).parent)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
