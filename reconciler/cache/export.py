"""Brings files of the hub into a plain folder: for a USB disk, an air gap, another tool.

DIR/x.gguf             a file, once it is whole and verified
   /.xgen/lock         held by the one that writes here
   /.xgen/partial/     what is being written
"""

import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from reconciler.atomic_file import make_folder
from reconciler.cache.amounts import human
from reconciler.cache.check import check_file
from reconciler.cache.choose import is_hidden
from reconciler.cache.names import check_paths
from reconciler.cache.partial import (
    NO_ROOM,
    allocated_bytes,
    claims_on,
    open_partial,
    remove_dead,
    remove_outdated,
)
from reconciler.cache.record import RecordedObject
from reconciler.cache.side_by_side import side_by_side
from reconciler.cache.store import Store
from reconciler.errors import Rejected, Transient
from reconciler.file_lock import held, held_now

_CHECKS_AT_ONCE = 4
_SHOWN_FILES = 5


class Progress(Protocol):
    """Told from several threads."""

    def begin(self, doing: str, size_bytes: int) -> None: ...
    def advance(self, size_bytes: int) -> None: ...


class _Found(Enum):
    """What stands where a file belongs."""

    NOTHING = auto()
    EQUAL = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """`fetched`: paths that were brought now. `others`: files there that are none of the model's.

    `fetched_bytes`: without what an earlier try had left of them.
    """

    fetched: tuple[str, ...]
    fetched_bytes: int
    others: tuple[str, ...]


class Export:
    """One pull of a prefix's files into a folder. `replace`: also where other files stand."""

    def __init__(self, store: Store, prefix: str, folder: Path, *, replace: bool) -> None:
        self._store = store
        self._prefix = prefix
        self._folder = folder
        self._replace = replace
        self._partials = folder / ".xgen" / "partial"
        self._ended = threading.Event()

    def run(
        self,
        items: Sequence[RecordedObject],
        progress: Progress,
        *,
        on_wait: Callable[[], None],
        on_done: Callable[[], None],
    ) -> Exported:
        """Blocking. `on_wait`: another pull writes there, its end is waited for. `on_done`: all is
        there, and nobody else writes yet.

        Raises Rejected before anything is fetched where other files are in the way; Transient. What
        is done stays done: the next try goes on there.
        """
        check_paths((item.path for item in items), self._prefix, doing="pull")
        try:
            self._check_room([item for item in items if not self._has_size(item)])  # makes nothing
            with self._locked(on_wait):
                missing = self._missing(items, progress)
                remove_outdated(self._partials, missing)
                self._check_room(missing)
                fetched_bytes = self._fetch_all(missing, progress)
                self._tidy()
                on_done()
                others = self._others(items)
        except OSError as exc:
            raise self._explained(exc, items) from exc
        finally:
            self._ended.set()
        return Exported(
            fetched=tuple(item.path for item in missing),
            fetched_bytes=fetched_bytes,
            others=others,
        )

    @contextmanager
    def _locked(self, on_wait: Callable[[], None]) -> Iterator[None]:
        make_folder(self._folder)
        self._check_inside(".xgen/lock")
        make_folder(self._partials)
        lock = self._partials.with_name("lock")
        with held_now(lock) as is_free:
            if not is_free:
                on_wait()
        with held(lock):
            make_folder(self._partials)  # whoever was here before us took it away
            yield

    def _check_inside(self, path: str) -> None:
        """Links that are there already must not lead a file out of the folder."""
        root = os.path.realpath(self._folder)
        parent = os.path.realpath(self._folder / os.path.dirname(path))
        if os.path.commonpath([root, parent]) != root:
            raise Rejected(
                f"{self._cannot()}: a link in it leads {path} out to {parent}; remove the link"
            )

    def _missing(
        self, items: Sequence[RecordedObject], progress: Progress
    ) -> tuple[RecordedObject, ...]:
        """Every file that is there already is read; the others are told."""
        found: dict[str, _Found] = {}
        there = [item for item in items if self._has_size(item)]
        progress.begin("checking what is there", sum(item.size_bytes for item in there))

        def look(item: RecordedObject, is_over: Callable[[], bool]) -> None:
            found[item.path] = self._look(item, progress, lambda: is_over() or self._ended.is_set())

        side_by_side(look, items, at_once=_CHECKS_AT_ONCE)
        clashes = [item.path for item in items if found[item.path] is _Found.OTHER]
        if clashes and not self._replace:
            shown = ", ".join(clashes[:_SHOWN_FILES])
            more = len(clashes) - _SHOWN_FILES
            raise Rejected(
                f"{self._cannot()}: other files have names of the model's there: {shown}"
                f"{f' and {more} more' if more > 0 else ''}; give another folder, or --force "
                "replaces them"
            )
        return tuple(item for item in items if found[item.path] is not _Found.EQUAL)

    def _has_size(self, item: RecordedObject) -> bool:
        try:
            status = os.lstat(self._folder / item.path)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == item.size_bytes

    def _look(
        self, item: RecordedObject, progress: Progress, cancelled: Callable[[], bool]
    ) -> _Found:
        self._check_inside(item.path)
        path = self._folder / item.path
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return _Found.NOTHING
        except NotADirectoryError as exc:
            raise Rejected(
                f"{self._cannot()}: a file stands where a folder of {item.path} belongs"
            ) from exc
        if stat.S_ISDIR(status.st_mode):
            raise Rejected(f"{self._cannot()}: {item.path} is a folder there")
        if not self._has_size(item):
            return _Found.OTHER
        checked = check_file(str(path), item, on_bytes=progress.advance, cancelled=cancelled)
        return _Found.EQUAL if checked.fault is None else _Found.OTHER

    def _check_room(self, missing: Sequence[RecordedObject]) -> None:
        if self._unwritten(missing) > self._free():
            raise self._no_room(missing)

    def _free(self) -> int:
        """Where the folder is, or will be."""
        there = next(each for each in (self._folder, *self._folder.parents) if each.is_dir())
        return shutil.disk_usage(there).free

    def _unwritten(self, missing: Sequence[RecordedObject]) -> int:
        return sum(item.size_bytes - allocated_bytes(self._partials, item) for item in missing)

    def _fetch_all(self, missing: Sequence[RecordedObject], progress: Progress) -> int:
        """The largest first: the others fill the time in which it ends. Returns what came."""
        left = {item.path: self._left_of(item) for item in missing}
        size = sum(item.size_bytes - left[item.path] for item in missing)
        progress.begin("fetching", size)

        def fetch(item: RecordedObject, is_over: Callable[[], bool]) -> None:
            here = left[item.path]

            def note(now: int) -> None:
                nonlocal here
                progress.advance(now - here)
                here = now

            self._fetch(item, note, lambda: is_over() or self._ended.is_set())
            note(item.size_bytes)

        by_size = sorted(missing, key=lambda item: item.size_bytes, reverse=True)
        side_by_side(fetch, by_size, at_once=self._store.reads_at_once)
        return size

    def _left_of(self, item: RecordedObject) -> int:
        claims = claims_on(self._partials, item)
        return 0 if claims is None else claims.done_bytes

    def _fetch(
        self,
        item: RecordedObject,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        with open_partial(self._partials, item) as partial:
            self._store.read(
                item, partial.fd, on_bytes=on_bytes, cancelled=cancelled, journal=partial.journal
            )
            size = os.fstat(partial.fd).st_size
            if size != item.size_bytes:
                raise Transient(
                    f"cannot fetch {item.key}: {size} bytes came, {item.size_bytes} are listed"
                )
            partial.publish(self._folder / item.path)

    def _tidy(self) -> None:
        """What other pulls have left half done stays, for a week; else nothing of ours does."""
        remove_dead(self._partials)
        if [path.name for path in self._partials.iterdir()] == [".lock"]:
            shutil.rmtree(self._partials)

    def _others(self, items: Sequence[RecordedObject]) -> tuple[str, ...]:
        """Without hidden names: no push takes these."""
        ours = {item.path for item in items}
        found = (
            os.path.relpath(os.path.join(folder, name), self._folder)
            for folder, _, names in os.walk(self._folder)
            for name in names
        )
        return tuple(sorted(path for path in found if path not in ours and not is_hidden(path)))

    def _cannot(self) -> str:
        return f"cannot pull {self._prefix} into {self._folder}"

    def _no_room(self, missing: Sequence[RecordedObject]) -> Transient:
        needed, free = self._unwritten(missing), self._free()
        return Transient(f"{self._cannot()}: {human(needed)} are needed and {human(free)} are free")

    def _explained(self, exc: OSError, items: Sequence[RecordedObject]) -> Transient:
        if exc.errno in NO_ROOM:
            return self._no_room([item for item in items if not self._has_size(item)])
        where = f"{exc.filename}: " if exc.filename else ""
        hint = " (FAT32 takes up to 4 GiB)" if exc.errno == errno.EFBIG else ""
        return Transient(f"{self._cannot()}: {where}{exc.strerror}{hint}")
