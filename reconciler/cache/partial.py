"""Files that are being written. Each is locked by its writer, so that the dead ones can be told.

`.partial/NAME` and `NAME.journal` are named after the object and its version: the next try of
either process finds them again. What has no journal is of no use to it.
"""

import errno
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.atomic_file import make_folder, sync_folder
from reconciler.cache.journal import Claims, PartsJournal, read_claims
from reconciler.cache.store import StoredObject
from reconciler.file_lock import held, try_lock

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_JOURNAL = ".journal"
_LOCK = ".lock"
_KEPT_SECONDS = 7 * 86400.0
"""A model that was taken out and comes back within a week goes on where it was."""
_LOCK_TRIES = 10
_LOCK_SECONDS = 0.1
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOff:
    """What a download that was cut off has left. `key`: of the object; None: nobody can tell.

    `size_bytes`: on disk.
    """

    key: str | None
    size_bytes: int


class Partial:
    """An object on its way, locked for as long as it is open."""

    def __init__(self, fd: int, path: Path, item: StoredObject) -> None:
        self.fd = fd
        self.journal = PartsJournal(_journal_of(path), item, fd)
        self._path = path
        self._is_published = False

    def publish(self, target: Path) -> None:
        """Give the written file its name, on disk when this returns."""
        os.fchmod(self.fd, 0o644)
        os.fsync(self.fd)
        make_folder(target.parent)
        os.replace(self._path, target)
        self._is_published = True
        sync_folder(target.parent)

    def close(self, *, keep: bool) -> None:
        """`keep`: what the journal knows to be finished stays for the next try."""
        if self._is_published:
            self.journal.remove()
        elif not (keep and self.journal.has_parts):
            self._path.unlink(missing_ok=True)
            self.journal.remove()
        self.journal.close()
        os.close(self.fd)


@contextmanager
def open_partial(folder: Path, item: StoredObject) -> Iterator[Partial]:
    """What an earlier try has left of the object, or an empty file.

    What was not published by the end of the block is kept for the next try, as far as the journal
    knows it to be finished; not where the disk is full: then others need the room more.
    """
    partial = _locked_soon(folder, folder / name_of(item), item)
    if partial is None:
        partial = _locked_soon(folder, _nameless(folder), item)
    if partial is None:
        raise OSError(errno.EBUSY, "a new file is locked already")
    keep = True
    try:
        yield partial
    except OSError as exc:
        keep = exc.errno not in NO_ROOM
        raise
    finally:
        partial.close(keep=keep)


def claims_on(folder: Path, item: StoredObject) -> Claims | None:
    """What an earlier try says it has of the object; not compared with the file yet."""
    path = folder / name_of(item)
    claims = read_claims(_journal_of(path))
    if claims is None or not claims.are_of(item) or not path.is_file():
        return None
    return claims


def allocated_bytes(folder: Path, item: StoredObject) -> int:
    """How much of the object has its place on the disk already."""
    try:
        status = os.stat(folder / name_of(item))
    except FileNotFoundError:
        return 0
    return min(item.size_bytes, status.st_blocks * 512)


def remove_dead(folder: Path) -> None:
    """Remove what writers that are gone left behind, but for what can be gone on with."""
    oldest = time.time() - _KEPT_SECONDS
    _sweep(folder, lambda path, claims: claims is None or _written_at(path) < oldest)


def remove_outdated(folder: Path, items: Collection[StoredObject]) -> None:
    """Remove other versions of these objects: nobody will ask for them again."""
    keys = {item.key for item in items}
    names = {name_of(item) for item in items}
    _sweep(
        folder,
        lambda path, claims: claims is not None and claims.key in keys and path.name not in names,
    )


def remove_others(
    folder: Path, items: Collection[StoredObject], *, dry: bool = False
) -> tuple[CutOff, ...]:
    """Remove all that nobody writes, but for these objects: there is no room for it.

    Gives what went, or would go (`dry`).
    """
    names = {name_of(item) for item in items}
    return _sweep(folder, lambda path, _claims: path.name not in names, dry=dry)


def name_of(item: StoredObject) -> str:
    """One that only this version of the object has; an object without a version has none."""
    if not item.version:
        return secrets.token_hex(16)
    text = f"{item.key}\0{item.version}\0{item.size_bytes}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]


def _nameless(folder: Path) -> Path:
    return folder / secrets.token_hex(16)


def _locked_soon(folder: Path, path: Path, item: StoredObject) -> Partial | None:
    """None where somebody else keeps it: an agent on a file system that shares no locks of ours.

    The transfer process of an agent that was killed lets go within milliseconds.
    """
    for _ in range(_LOCK_TRIES):
        with held(folder / _LOCK):  # nobody sweeps between the two steps
            fd = os.open(path, _FLAGS, 0o600)
            if try_lock(fd):
                partial = Partial(fd, path, item)
                if os.fstat(fd).st_size != item.size_bytes:
                    partial.journal.remove()
                return partial
            os.close(fd)
        time.sleep(_LOCK_SECONDS)
    return None


def _journal_of(path: Path) -> Path:
    return path.with_name(path.name + _JOURNAL)


def _written_at(path: Path) -> float:
    return _journal_of(path).stat().st_mtime


def _sweep(
    folder: Path, is_useless: Callable[[Path, Claims | None], bool], *, dry: bool = False
) -> tuple[CutOff, ...]:
    found = []
    with held(folder / _LOCK):
        for path in sorted(folder.iterdir()):
            if path.name == _LOCK or not path.is_file():
                continue
            if path.name.endswith(_JOURNAL):
                if not dry and not path.with_name(path.name.removesuffix(_JOURNAL)).exists():
                    path.unlink()
                continue
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                claims = read_claims(_journal_of(path))
                if not try_lock(fd) or not is_useless(path, claims):
                    continue
                size = _on_disk(path) + _on_disk(_journal_of(path))
                found.append(CutOff(key=claims.key if claims else None, size_bytes=size))
                if not dry:
                    path.unlink()
                    _journal_of(path).unlink(missing_ok=True)
            finally:
                os.close(fd)
    return tuple(found)


def _on_disk(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
