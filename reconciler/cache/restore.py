"""Which revision a fetch brings: again the one that is here, else what the hub holds now.

A file that rotted, or was removed, is no reason to move a model to a newer push.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from reconciler.cache.doubt import accept, doubted
from reconciler.cache.layout import Layout, has_size
from reconciler.cache.listing import listed
from reconciler.cache.news import News
from reconciler.cache.pins import Holding
from reconciler.cache.record import Record, RecordedObject, load_record, save_record
from reconciler.cache.store import Store
from reconciler.errors import Gone, Transient

_log = structlog.get_logger(__name__)


def revision(layout: Layout, store: Store, prefix: str, digest: str | None) -> Record:
    """What the hub holds, of `digest` or now, with what is here of it; the prefix's lock is held.

    The same contents may have other places in the hub than before. Raises as `listed` does.
    """
    record = listed(store, prefix, digest)
    path = layout.record(prefix, record.digest)
    known = load_record(path)
    if known is not None:
        record = replace(record, present=known.present, former=known.former)
    if record != known:
        save_record(record, path)
    return record


def again(
    layout: Layout, store: Store, holding: Holding, tell: Callable[[News], None]
) -> Record | None:
    """The revision of these files, from which the lost and doubtful ones can be brought; the lock
    is held.

    None where the hub has it no more: then the lost files do not count as present any longer.
    Raises Transient where the hub does not say; OSError. Where none is lost, neither comes of it:
    the doubtful ones are accepted.
    """
    path = layout.record(holding.prefix, holding.digest)
    known = load_record(path)
    if known is None:
        return None
    lost, unsure = _lost(layout, holding, known), doubted(layout, holding)
    try:
        if known.is_verified:
            return revision(layout, store, holding.prefix, holding.digest)
        record = _with_places(known, lost | unsure, listed(store, holding.prefix))
    except Transient as exc:
        if unsure and not lost:
            accept(layout, holding, unsure, cause=str(exc), tell=tell)
            return known
        if not isinstance(exc, Gone):
            raise
        _log.warning(
            "a revision cannot be made whole again; what the hub holds now is fetched",
            prefix=holding.prefix,
            digest=holding.digest,
            cause=str(exc),
        )
        save_record(replace(known, present=known.present - lost), path)
        return None
    save_record(record, path)
    return record


def _lost(layout: Layout, holding: Holding, known: Record) -> frozenset[str]:
    folder = layout.folder(holding.prefix, holding.digest)
    sizes = known.sizes
    return frozenset(
        path
        for path in holding.paths
        if path not in known.present or not has_size(folder / path, sizes[path])
    )


def _with_places(known: Record, lost: Collection[str], now: Record) -> Record:
    """`known`, with where its lost files lie now. Without a catalog a version tells a content.

    Raises Gone where one of them is another now.
    """
    there = {item.path: item for item in now.objects}

    def placed(item: RecordedObject) -> RecordedObject:
        if item.path not in lost:
            return item
        found = there.get(item.path)
        if found is None or (found.size_bytes, found.version) != (item.size_bytes, item.version):
            raise Gone(f"cannot fetch {item.key}: the hub holds another one now, and no older one")
        return replace(item, key=found.key)

    return replace(known, objects=tuple(map(placed, known.objects)))
