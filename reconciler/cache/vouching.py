"""A catalog that appears for files that are here already: their contents are proven, once.

The running model goes on under the new digest (R4): the record says what the old one was.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from reconciler.atomic_file import make_folder, sync_folder
from reconciler.cache.check import check_file
from reconciler.cache.layout import Layout, publish_link
from reconciler.cache.record import Record, RecordedObject, load_record, save_record
from reconciler.cache.stamps import stamp_published
from reconciler.errors import Transient
from reconciler.file_lock import held
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached


class Vouching:
    """Of one cache. What was compared and is another content is not read again."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._unlike: set[tuple[FilesDigest | None, FilesDigest]] = set()

    def applies(self, found: FilesCached, record: Record) -> bool:
        """Whether it is worth a try: only what the hub holds now has a catalog."""
        unlike = (found.revision, record.digest) in self._unlike
        return not found.verified and record.is_verified and not unlike

    def vouch(
        self,
        prefix: str,
        found: FilesCached,
        record: Record,
        paths: Sequence[str],
        cancelled: Callable[[], bool],
    ) -> bool:
        """Whether the bytes of an uncatalogued revision are now those of a catalog's."""
        try:
            with held(self._layout.lock(prefix), cancelled=cancelled):
                old = load_record(self._layout.record(prefix, str(found.revision)))
                done = old is not None and _vouch(
                    self._layout, prefix, old=old, new=record, paths=paths, cancelled=cancelled
                )
        except OSError as exc:
            raise Transient(f"cannot check {prefix}: {exc.strerror}") from exc
        if not done:
            self._unlike.add((found.revision, record.digest))
        return done


def _vouch(
    layout: Layout,
    prefix: str,
    *,
    old: Record,
    new: Record,
    paths: Sequence[str],
    cancelled: Callable[[], bool],
) -> bool:
    """Give `new`, a catalog's revision, these files of `old`, if their contents are the catalog's.

    The prefix's lock is held; reads every file. False: they are not, or this file system has no
    hard links. Raises Transient when cancelled; OSError.
    """
    wanted = [item for item in new.objects if item.path in frozenset(paths)]
    if not all(old.sizes.get(item.path) == item.size_bytes for item in wanted):
        return False
    folder = layout.folder(prefix, old.digest)
    for item in wanted:
        if check_file(os.fspath(folder / item.path), item, cancelled=cancelled).fault is not None:
            return False
    if not _shared(folder, layout.folder(prefix, new.digest), wanted):
        return False
    versions = {item.path: item.version for item in old.objects}
    path = layout.record(prefix, new.digest)
    known = load_record(path) or new
    former = {**known.former, **{item.path: versions[item.path] for item in wanted}}
    save_record(replace(known, former=former).with_present(paths), path)
    stamp_published(layout, prefix, new.digest, wanted)
    if layout.linked_digest(prefix) == old.digest:
        publish_link(layout, prefix, new.digest)
    return True


def _shared(origin: Path, target: Path, items: Sequence[RecordedObject]) -> bool:
    for item in items:
        link = target / item.path
        make_folder(link.parent)
        link.unlink(missing_ok=True)
        try:
            os.link(os.path.realpath(origin / item.path), link)
        except OSError:
            return False
        sync_folder(link.parent)
    return True
