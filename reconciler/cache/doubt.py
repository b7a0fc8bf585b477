"""Files that look changed where the hub told no more than their size: nobody here can tell whether
they are right.

They come again from the hub. What it does not give is used as it is, and that is told: without the
hub a model that was only touched serves on.
"""

import os
from collections.abc import Callable, Collection
from dataclasses import replace

from reconciler.cache.layout import Layout
from reconciler.cache.news import FileDoubted, News
from reconciler.cache.pins import Holding
from reconciler.cache.record import RecordedObject, load_record
from reconciler.cache.stamps import (
    NEVER,
    Proof,
    Stamp,
    load_stamps,
    proof_of,
    save_stamps,
    stamp_of,
)

COMES_AGAIN = "it is fetched again"


def is_doubtful(layout: Layout, prefix: str, digest: str, item: RecordedObject) -> bool:
    """Of a file that is here, and as large as it should be."""
    if proof_of(item) is not Proof.SIZE:
        return False
    stamp = load_stamps(layout.stamps(prefix, digest)).get(item.path)
    try:
        status = os.stat(layout.folder(prefix, digest) / item.path)
    except OSError:
        return False
    looks_changed = stamp is not None and not stamp.is_of(status)
    return looks_changed and status.st_size == item.size_bytes


def doubted(layout: Layout, holding: Holding) -> frozenset[str]:
    record = load_record(layout.record(holding.prefix, holding.digest))
    return frozenset(
        item.path
        for item in (record.objects if record is not None else ())
        if item.path in holding.paths and is_doubtful(layout, holding.prefix, holding.digest, item)
    )


def noted(stamp: Stamp) -> Stamp | None:
    """What marks a doubtful file as told; None: it was already."""
    if stamp.proof is Proof.NONE and stamp.mtime_ns == NEVER:
        return None
    return replace(stamp, proof=Proof.NONE, mtime_ns=NEVER)


def accept(
    layout: Layout,
    holding: Holding,
    paths: Collection[str],
    *,
    cause: str,
    tell: Callable[[News], None],
) -> None:
    """Use these files as they are from now on; the prefix's lock is held. Raises OSError.

    A newer fetch of the same revision does not bring them again, nor shares another one them.
    """
    path = layout.stamps(holding.prefix, holding.digest)
    stamps = load_stamps(path)
    for each in sorted(paths):
        status = os.stat(layout.folder(holding.prefix, holding.digest) / each)
        stamps[each] = stamp_of(status, Proof.NONE)
        tell(doubt(holding, each, status.st_size, f"it is used as it is: {cause}"))
    if paths:
        save_stamps(path, stamps)


def doubt(holding: Holding, path: str, size_bytes: int, done: str) -> FileDoubted:
    return FileDoubted(
        prefix=holding.prefix, digest=holding.digest, path=path, size_bytes=size_bytes, done=done
    )
