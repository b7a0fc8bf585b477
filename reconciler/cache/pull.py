"""Brings the missing files of one revision from the hub, each verified before it has its name."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reconciler.cache.layout import Layout, make_folder, sync_folder
from reconciler.cache.partial import new_partial
from reconciler.cache.record import Record, RecordedObject, load_record, save_record
from reconciler.cache.store import Store
from reconciler.errors import Transient

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

OnProgress = Callable[[int, int], None]
"""Told the bytes that are here, and the bytes of all files of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """One fetch of one model. The prefix's lock is held for as long as it lasts."""

    store: Store
    layout: Layout
    prefix: str
    on_progress: OnProgress
    cancelled: Callable[[], bool]

    def run(self, record: Record, paths: tuple[str, ...]) -> Record:
        """Publish these paths of the revision; returns its record. Raises Transient, Rejected.

        What is done stays done: the next try begins after the last whole file.
        """
        wanted = [item for item in record.objects if item.path in frozenset(paths)]
        total = sum(item.size_bytes for item in wanted)
        missing = [item for item in wanted if not self._is_present(record, item)]
        done = total - sum(item.size_bytes for item in missing)
        self.on_progress(done, total)
        try:
            make_folder(self.layout.folder(self.prefix, record.digest))
            make_folder(self.layout.partials)
            shared = [item for item in missing if self._link_from_another(record, item)]
            record = self._record(record, shared)
            missing = [item for item in missing if item not in shared]
            done += sum(item.size_bytes for item in shared)
            self._check_room(missing)
            for item in missing:
                self._fetch(record, item, done, total)
                record = self._record(record, [item])
                done += item.size_bytes
                self.on_progress(done, total)
        except OSError as exc:
            raise self._explained(exc, total - done) from exc
        return record

    def _record(self, record: Record, items: list[RecordedObject]) -> Record:
        if not items:
            return record
        record = record.with_present(item.path for item in items)
        save_record(record, self.layout.record(self.prefix, record.digest))
        return record

    def _path(self, digest: str, path: str) -> Path:
        return self.layout.folder(self.prefix, digest) / path

    def _is_present(self, record: Record, item: RecordedObject) -> bool:
        path = self._path(record.digest, item.path)
        return item.path in record.present and _has_size(path, item.size_bytes)

    def _link_from_another(self, record: Record, item: RecordedObject) -> bool:
        """Share a file with a revision that has the same version of it."""
        if not item.version:
            return False
        for path in self.layout.revisions(self.prefix).glob("*.json"):
            other = load_record(path)
            if other is None or other.digest == record.digest or item.path not in other.present:
                continue
            origin = self._path(other.digest, item.path)
            if item not in other.objects or not _has_size(origin, item.size_bytes):
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

    def _fetch(self, record: Record, item: RecordedObject, done: int, total: int) -> None:
        if self.cancelled():
            raise Transient(f"cannot fetch {self.prefix}: it is no longer wanted")
        with new_partial(self.layout.partials) as partial:
            self.store.read(
                item,
                partial.fd,
                on_bytes=lambda here: self.on_progress(done + here, total),
                cancelled=self.cancelled,
            )
            size = os.fstat(partial.fd).st_size
            if size != item.size_bytes:
                raise Transient(
                    f"cannot fetch {item.key}: {size} bytes came, {item.size_bytes} are listed"
                )
            partial.publish(self._path(record.digest, item.path))

    def _check_room(self, missing: list[RecordedObject]) -> None:
        needed = sum(item.size_bytes for item in missing)
        free = shutil.disk_usage(self.layout.models).free
        if needed > free:
            raise Transient(self._no_room(needed, free))

    def _no_room(self, needed: int, free: int) -> str:
        return (
            f"cannot fetch {self.prefix}: {_human(needed)} are needed and {_human(free)} are free "
            f"in {self.layout.models}"
        )

    def _explained(self, exc: OSError, missing: int) -> Transient:
        if exc.errno in _NO_ROOM:
            return Transient(self._no_room(missing, shutil.disk_usage(self.layout.models).free))
        return Transient(f"cannot fetch {self.prefix} into {self.layout.models}: {exc.strerror}")


def _has_size(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes
    except OSError:
        return False


def _human(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
