"""Takes the folder of an older installation into the cache, instead of fetching it again."""

import os
from collections.abc import Callable
from pathlib import Path

from reconciler.atomic_file import make_folder, sync_folder
from reconciler.cache.check import check_file
from reconciler.cache.in_place import files_below
from reconciler.cache.layout import Layout
from reconciler.cache.record import Record, RecordedObject, save_record
from reconciler.cache.stamps import stamp_published


def take_in(
    layout: Layout, prefix: str, record: Record, *, cancelled: Callable[[], bool]
) -> Record | None:
    """Move the folder at the prefix into the revision; what is as listed is present.

    That is told by SHA-256 or MD5 where the hub has one, which reads every file, else by size.
    Files that are not, or that the hub does not have, are moved beside the revision, never deleted.
    None where the folder cannot be moved (a mount, another file system, read-only): it is untouched
    or nearly so, and can be used in place. Raises Transient when cancelled.
    """
    standing = layout.link(prefix)
    target = layout.folder(prefix, record.digest)
    if standing.is_symlink() or target.exists():
        return None
    try:
        listed = {item.path: item for item in record.objects}
        fitting = {
            path
            for path in files_below(standing)
            if path in listed
            and _stays_inside(standing, path)
            and _is_right(standing / path, listed[path], cancelled)
        }
        for path in _all_files(standing):
            if path not in fitting and not _links_need(path):
                aside = layout.kept(prefix, record.digest) / path
                make_folder(aside.parent)
                os.rename(standing / path, aside)
        record = record.with_present(fitting)
        save_record(record, layout.record(prefix, record.digest))  # true once the folder is there
        os.rename(standing, target)
        stamp_published(layout, prefix, record.digest, (listed[path] for path in sorted(fitting)))
        sync_folder(target.parent)
        sync_folder(standing.parent)
    except OSError:
        return None
    return record


def _is_right(file: Path, item: RecordedObject, cancelled: Callable[[], bool]) -> bool:
    return check_file(os.fspath(file), item, cancelled=cancelled).fault is None


def _stays_inside(folder: Path, path: str) -> bool:
    """Whether the file is no link, or one that leads to the same file after a move."""
    file = folder / path
    if any((folder / parent).is_symlink() for parent in Path(path).parents):
        return False
    if not file.is_symlink():
        return True
    top = os.path.realpath(folder)
    inside = os.path.commonpath([top, os.path.realpath(file)]) == top
    return inside and not os.path.isabs(os.readlink(file))


def _all_files(folder: Path) -> list[str]:
    """Every entry that is no real folder, by its relative path; links are not followed."""
    found = []
    for top, folders, files in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(top, name))]
        found += [os.path.relpath(os.path.join(top, name), folder) for name in [*linked, *files]]
    return found


def _links_need(path: str) -> bool:
    """`blobs/` are what the links of a Hugging Face cache lead to."""
    return "blobs" in Path(path).parts[:-1]
