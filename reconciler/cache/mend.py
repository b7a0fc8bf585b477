"""Checks files that look changed, keeps the good ones and drops the rotten ones.

A touched file (a restore, a copy to another disk) is the same model still; one that rotted, or
that somebody wrote to, must not be served. Which it is, only its content tells; where nothing of
that is known (`doubt`), it is left to a fetch.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog

from reconciler.cache.check import Checked, check_file
from reconciler.cache.doubt import COMES_AGAIN, doubt, is_doubtful, noted
from reconciler.cache.layout import Layout
from reconciler.cache.news import FileRotten, Harmed
from reconciler.cache.pins import Holding
from reconciler.cache.record import RecordedObject, load_record
from reconciler.cache.stamps import Stamp, load_stamps, save_stamps
from reconciler.errors import Transient

_log = structlog.get_logger(__name__)

Tell = Callable[[int, int], None]
"""Told the bytes that were read, and those to be read."""


def mend(
    layout: Layout,
    holding: Holding,
    *,
    on_progress: Tell,
    cancelled: Callable[[], bool],
    comes_again: bool,
) -> tuple[Harmed, ...]:
    """Check those of these files that do not look as they did; the prefix's lock is held.

    What is right gets a new stamp; what is not is removed, so that a fetch brings it again, and
    told. What nobody can tell of is told, once, where it `comes_again`. Raises Transient when
    cancelled; OSError where it can neither be read nor removed.
    """
    changed = _changed(layout, holding)
    path = layout.stamps(holding.prefix, holding.digest)
    folder = layout.folder(holding.prefix, holding.digest)
    stamps = load_stamps(path)
    total, done = sum(item.size_bytes for item in changed), 0
    news: list[Harmed] = []

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    for item in changed:
        if is_doubtful(layout, holding.prefix, holding.digest, item):
            if comes_again and (mark := noted(stamps[item.path])) is not None:
                stamps[item.path] = mark
                save_stamps(path, stamps)
                news.append(doubt(holding, item.path, item.size_bytes, COMES_AGAIN))
            continue
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


def check(
    layout: Layout,
    holdings: Iterable[Holding],
    *,
    on_progress: Tell,
    cancelled: Callable[[], bool],
) -> Mapping[str, Stamp]:
    """The stamps, by absolute path, of changed files that are right, where none can be written.

    Raises Transient where one is rotten, or when cancelled; OSError.
    """
    found: dict[str, Stamp] = {}
    for holding in holdings:
        folder = layout.folder(holding.prefix, holding.digest)
        for item in _changed(layout, holding):
            path = os.path.join(os.path.realpath(folder), item.path)
            done = 0

            def advance(count: int, item: RecordedObject = item) -> None:
                nonlocal done
                done += count
                on_progress(done, item.size_bytes)

            checked = check_file(path, item, on_bytes=advance, cancelled=cancelled)
            if checked.stamp is None:
                raise Transient(
                    f"cannot use {item.path} of {holding.prefix}: it is rotten: {checked.fault}; "
                    f"{layout.models} cannot be written"
                )
            found[path] = checked.stamp
    return found


def _changed(layout: Layout, holding: Holding) -> list[RecordedObject]:
    record = load_record(layout.record(holding.prefix, holding.digest))
    if record is None:
        return []
    stamps = load_stamps(layout.stamps(holding.prefix, holding.digest))
    folder = layout.folder(holding.prefix, holding.digest)
    items = [item for item in record.objects if item.path in holding.paths]
    return [item for item in items if _looks_changed(folder / item.path, stamps.get(item.path))]


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
