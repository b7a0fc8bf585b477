"""Brings the missing files of one revision from the hub, each verified before it has its name."""

import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.atomic_file import make_folder, sync_folder
from reconciler.cache.amounts import human
from reconciler.cache.damage import Damage
from reconciler.cache.doubt import is_doubtful
from reconciler.cache.layout import Layout, has_size
from reconciler.cache.partial import (
    NO_ROOM,
    claims_on,
    open_partial,
    remove_outdated,
)
from reconciler.cache.pins import Holding
from reconciler.cache.record import Record, RecordedObject, load_record, save_record
from reconciler.cache.room import Coming, Room
from reconciler.cache.side_by_side import side_by_side
from reconciler.cache.stamps import is_unchanged, stamp_published
from reconciler.cache.store import Store
from reconciler.errors import Damaged, Transient

OnProgress = Callable[[int, int], None]
"""Told the bytes that are here, and the bytes of all files of the model."""


class _Progress:
    """The bytes of all files together. Thread-safe; what is told is told in order."""

    def __init__(self, total: int, tell: OnProgress) -> None:
        self.total = total
        self._tell = tell
        self._here: dict[str, int] = {}
        self._done = 0
        self._lock = threading.Lock()

    def preset(self, path: str, here: int) -> None:
        self._done += here - self._here.get(path, 0)
        self._here[path] = here

    def note(self, path: str, here: int) -> None:
        """So many bytes of this file are there; fewer than before where it begins anew."""
        with self._lock:
            if self._here.get(path) != here:
                self.preset(path, here)
                self._tell(self._done, self.total)

    @property
    def missing(self) -> int:
        return self.total - self._done


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """One fetch of one model. The prefix's lock is held for as long as it lasts.

    `besides`: what the model needs beside that, whatever it gave up to make room.
    """

    store: Store
    layout: Layout
    room: Room
    prefix: str
    damage: Damage
    on_progress: OnProgress
    cancelled: Callable[[], bool]
    besides: tuple[Holding, ...] = ()

    def run(self, record: Record, paths: tuple[str, ...]) -> Record:
        """Publish these paths of the revision; returns its record. Raises Transient, Rejected.

        What is done stays done: the next try begins after the last finished part of each file.
        Nothing is fetched, and it is Damaged again, while the hub holds a file that was so before.
        """
        wanted = [item for item in record.objects if item.path in frozenset(paths)]
        missing = [item for item in wanted if not self._is_present(record, item)]
        progress = self._progress(wanted, missing)
        try:
            make_folder(self.layout.folder(self.prefix, record.digest))
            make_folder(self.layout.partials)
            shared = [item for item in missing if self._link_from_another(record, item)]
            record = self._record(record, shared)
            missing = [item for item in missing if item not in shared]
            self.damage.begin()
            if (said := self.damage.said_of(missing)) is not None:
                raise Damaged(said)
            for item in shared:
                progress.preset(item.path, item.size_bytes)
            self.on_progress(progress.total - progress.missing, progress.total)
            remove_outdated(self.layout.partials, missing)
            model = Holding(prefix=self.prefix, digest=record.digest, paths=frozenset(paths))
            coming = Coming(
                model=model, items=missing, besides=self.besides, cancelled=self.cancelled
            )
            with self.room.reserved(coming):
                record = load_record(self.layout.record(self.prefix, record.digest)) or record
                return self._fetch_all(record, missing, progress)
        except OSError as exc:
            raise self._explained(exc, progress.missing) from exc

    def _progress(
        self, wanted: Sequence[RecordedObject], missing: Sequence[RecordedObject]
    ) -> _Progress:
        """What is here counts from the beginning, and what an earlier try left of a file: nothing
        is told before what other revisions share counts, too, lest that pass as speed."""
        progress = _Progress(sum(item.size_bytes for item in wanted), self.on_progress)
        for item in wanted:
            claims = claims_on(self.layout.partials, item) if item in missing else None
            left = 0 if claims is None else claims.done_bytes
            progress.preset(item.path, left if item in missing else item.size_bytes)
        return progress

    def _fetch_all(
        self, record: Record, missing: Sequence[RecordedObject], progress: _Progress
    ) -> Record:
        """The largest first: the others fill the time in which it ends."""
        lock = threading.Lock()
        current = record

        def fetch(item: RecordedObject, is_over: Callable[[], bool]) -> None:
            nonlocal current
            try:
                self._fetch(record, item, progress, lambda: is_over() or self.cancelled())
            except Damaged as exc:
                with lock:
                    self.damage.note(item, str(exc))
                raise
            with lock:
                self.damage.forget(item)
                current = self._record(current, [item])
            progress.note(item.path, item.size_bytes)

        by_size = sorted(missing, key=lambda item: item.size_bytes, reverse=True)
        side_by_side(fetch, by_size, at_once=self.store.reads_at_once)
        return current

    def _record(self, record: Record, items: list[RecordedObject]) -> Record:
        if not items:
            return record
        record = record.with_present(item.path for item in items)
        save_record(record, self.layout.record(self.prefix, record.digest))
        stamp_published(self.layout, self.prefix, record.digest, items)
        return record

    def _path(self, digest: str, path: str) -> Path:
        return self.layout.folder(self.prefix, digest) / path

    def _is_present(self, record: Record, item: RecordedObject) -> bool:
        path = self._path(record.digest, item.path)
        here = item.path in record.present and has_size(path, item.size_bytes)
        return here and not is_doubtful(self.layout, self.prefix, record.digest, item)

    def _link_from_another(self, record: Record, item: RecordedObject) -> bool:
        """Share a file with a revision that has the same version of it."""
        if not item.version and item.sha256 is None:
            return False
        for path in self.layout.revisions(self.prefix).glob("*.json"):
            other = load_record(path)
            if other is None or other.digest == record.digest or item.path not in other.present:
                continue
            origin = self._path(other.digest, item.path)
            if not any(item.is_same_file(each) for each in other.objects):
                continue
            if not is_unchanged(self.layout, self.prefix, other.digest, item):
                continue
            target = self._path(record.digest, item.path)
            make_folder(target.parent)
            target.unlink(missing_ok=True)
            try:
                os.link(os.path.realpath(origin), target)
            except OSError:
                return False  # a file system without hard links: fetched instead
            sync_folder(target.parent)
            return True
        return False

    def _fetch(
        self,
        record: Record,
        item: RecordedObject,
        progress: _Progress,
        cancelled: Callable[[], bool],
    ) -> None:
        if cancelled():
            raise Transient(f"cannot fetch {self.prefix}: it is no longer wanted")
        with open_partial(self.layout.partials, item) as partial:
            self.store.read(
                item,
                partial.fd,
                on_bytes=lambda here: progress.note(item.path, here),
                cancelled=cancelled,
                journal=partial.journal,
            )
            size = os.fstat(partial.fd).st_size
            if size != item.size_bytes:
                raise Transient(
                    f"cannot fetch {item.key}: {size} bytes came, {item.size_bytes} are listed"
                )
            partial.publish(self._path(record.digest, item.path))

    def _no_room(self, needed: int, free: int) -> str:
        return (
            f"cannot fetch {self.prefix}: {human(needed)} are needed and {human(free)} are free "
            f"in {self.layout.models}"
        )

    def _explained(self, exc: OSError, missing: int) -> Transient:
        if exc.errno in NO_ROOM:
            return Transient(self._no_room(missing, shutil.disk_usage(self.layout.models).free))
        return Transient(f"cannot fetch {self.prefix} into {self.layout.models}: {exc.strerror}")
