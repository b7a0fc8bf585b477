"""Takes revisions, or some of their files, out of the cache, in steps that a crash cannot spoil.

First nothing leads there any more (record, link), then the folder goes aside, then its bytes go.
What a `.kept` folder holds is never touched.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from reconciler.atomic_file import sync_folder
from reconciler.cache.eviction import Unit
from reconciler.cache.layout import Layout
from reconciler.cache.record import load_record, save_record
from reconciler.cache.stamps import load_stamps, save_stamps
from reconciler.file_lock import held_now

_log = structlog.get_logger(__name__)


@contextmanager
def free_prefixes(layout: Layout, prefixes: Iterable[str]) -> Iterator[frozenset[str]]:
    """Hold the locks of those that nobody works on; gives the others."""
    busy = set()
    with ExitStack() as stack:
        for prefix in prefixes:
            try:
                if not stack.enter_context(held_now(layout.lock(prefix))):
                    busy.add(prefix)
            except OSError:  # it may not be written: nothing can be removed there either
                busy.add(prefix)
        yield frozenset(busy)


def set_aside(layout: Layout, unit: Unit) -> Path | None:
    """Let nothing find the unit any more; the prefix's lock is held. Raises OSError.

    Gives what is left to remove, which may take long; None where all is done.
    """
    if not unit.whole:
        return _without_files(layout, unit)
    return _without_revision(layout, unit.prefix, unit.digest)


def remove_aside(path: Path | None) -> None:
    """What cannot be removed now is at the next start of an agent."""
    if path is None:
        return
    try:
        shutil.rmtree(path)
    except OSError as exc:
        _log.warning("evicted files cannot be removed", path=str(path), cause=exc.strerror)


def remove_all_aside(layout: Layout) -> None:
    """What a process that died has left of evictions."""
    for path in (layout.models / ".rev").glob("*/*/*.evicted"):
        remove_aside(path)


def _without_revision(layout: Layout, prefix: str, digest: str) -> Path | None:
    if layout.linked_digest(prefix) == digest:
        layout.link(prefix).unlink(missing_ok=True)
    layout.stamps(prefix, digest).unlink(missing_ok=True)
    layout.record(prefix, digest).unlink(missing_ok=True)
    folder, aside = layout.folder(prefix, digest), layout.evicted(prefix, digest)
    if aside.exists():
        shutil.rmtree(aside)
    if not folder.is_dir():
        return None
    os.rename(folder, aside)
    sync_folder(folder.parent)
    return aside


def _without_files(layout: Layout, unit: Unit) -> Path | None:
    record = load_record(layout.record(unit.prefix, unit.digest))
    if record is not None:
        record = replace(record, present=record.present - unit.paths)
        save_record(record, layout.record(unit.prefix, unit.digest))
    stamps = load_stamps(layout.stamps(unit.prefix, unit.digest))
    left = {path: stamp for path, stamp in stamps.items() if path not in unit.paths}
    save_stamps(layout.stamps(unit.prefix, unit.digest), left)
    folder = layout.folder(unit.prefix, unit.digest)
    for path in unit.paths:
        (folder / path).unlink(missing_ok=True)
    if record is not None and record.present:
        return None
    anything = any(files for _, _, files in os.walk(folder))
    return None if anything else _without_revision(layout, unit.prefix, unit.digest)
