"""Checks files that look changed, keeps the good ones and drops the rotten ones.

A touched file (a restore, a copy to another disk) is the same model still; one that rotted, or
that somebody wrote to, must not be served. Which it is, only its content tells.
"""

import os
from collections.abc import Callable
from pathlib import Path

import structlog

from reconciler.cache.check import Checked, check_file
from reconciler.cache.layout import Layout
from reconciler.cache.news import FileRotten, News
from reconciler.cache.pins import Holding
from reconciler.cache.record import RecordedObject, load_record
from reconciler.cache.stamps import Stamp, load_stamps, save_stamps

_log = structlog.get_logger(__name__)

Tell = Callable[[int, int], None]
"""Told the bytes that were read, and those to be read."""


def mend(
    layout: Layout,
    holding: Holding,
    *,
    on_progress: Tell,
    cancelled: Callable[[], bool],
) -> tuple[News, ...]:
    """Check those of these files that do not look as they did; the prefix's lock is held.

    What is right gets a new stamp; what is not is removed, so that a fetch brings it again, and
    told. Raises Transient when cancelled; OSError where it can neither be read nor removed.
    """
    record = load_record(layout.record(holding.prefix, holding.digest))
    if record is None:
        return ()
    path = layout.stamps(holding.prefix, holding.digest)
    folder = layout.folder(holding.prefix, holding.digest)
    stamps = load_stamps(path)
    items = [item for item in record.objects if item.path in holding.paths]
    changed = [item for item in items if _looks_changed(folder / item.path, stamps.get(item.path))]
    total, done = sum(item.size_bytes for item in changed), 0
    news: list[News] = []

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    for item in changed:
        checked = check_file(
            os.fspath(folder / item.path), item, on_bytes=advance, cancelled=cancelled
        )
        if checked.stamp is not None:
            stamps[item.path] = checked.stamp
            _log.info("a file that looked changed is as it was pushed", path=item.path)
        else:
            stamps.pop(item.path)
            (folder / item.path).unlink()
            news.append(_rotten(holding, item, checked))
        save_stamps(path, stamps)
    return tuple(news)


def _looks_changed(path: Path, stamp: Stamp | None) -> bool:
    try:
        return stamp is not None and not stamp.is_of(os.stat(path))
    except FileNotFoundError:
        return False


def _rotten(holding: Holding, item: RecordedObject, checked: Checked) -> FileRotten:
    return FileRotten(
        prefix=holding.prefix,
        digest=holding.digest,
        path=item.path,
        size_bytes=item.size_bytes,
        cause=checked.fault or "",
    )
