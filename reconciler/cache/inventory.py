"""What stands in the cache: every revision with its files, as the disk has them now."""

import os
import stat
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from reconciler.cache.eviction import Inode, Stock, Unit
from reconciler.cache.layout import Layout
from reconciler.cache.pins import Pins
from reconciler.cache.record import Record, load_record

_BLOCK_BYTES = 512
"""Of `st_blocks`, whatever the file system's own blocks are."""

LastUses = Mapping[tuple[str, str, str], float]
"""By prefix, digest and path, in seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """`size_bytes`: on disk. `links`: how many names it has, anywhere."""

    path: str
    inode: Inode
    size_bytes: int
    links: int
    is_link: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRevision:
    """`record` None: it is lost or damaged, so nothing can be served from here.

    `linked`: the prefix's link leads here. `written_at`: when a file of it was published last,
    in seconds since 1970. `kept_bytes`: of an older installation and not in the hub; never removed.
    """

    prefix: str
    digest: str
    record: Record | None
    files: tuple[StoredFile, ...]
    linked: bool
    written_at: float
    kept_bytes: int

    @property
    def size_bytes(self) -> int:
        return sum({file.inode: file.size_bytes for file in self.files}.values())

    @property
    def is_only_kept(self) -> bool:
        """What was ours of it is gone."""
        return self.record is None and not self.files and self.kept_bytes > 0

    @property
    def inodes(self) -> dict[Inode, int]:
        return {file.inode: file.size_bytes for file in self.files}


def inventory(layout: Layout) -> tuple[StoredRevision, ...]:
    """All revisions, sorted by prefix and digest. One `stat` a file; what vanishes is left out."""
    found = []
    for folder in sorted((layout.models / ".rev").glob("*/*")):
        if not folder.is_dir():
            continue
        prefix = f"{folder.parent.name}/{folder.name}"
        linked = layout.linked_digest(prefix)
        for digest in sorted(_digests(os.fspath(folder))):
            found.append(_revision(layout, prefix, digest, linked=digest == linked))
    return tuple(found)


def stock(
    revisions: Collection[StoredRevision],
    pins: Pins,
    uses: LastUses,
    *,
    busy: Collection[str] = (),
) -> Stock:
    """What can go: all that no model needs. `busy`: prefixes that somebody works on.

    Files that were used together go together.
    """
    units: list[Unit] = []
    for item in revisions:
        if item.prefix not in busy and not item.is_only_kept:
            units += _units(item, pins, uses)
    names = Counter(file.inode for item in revisions for file in item.files)
    going = Counter(inode for unit in units for inode in unit.inodes)
    return Stock(
        units=tuple(units),
        staying=frozenset(inode for inode, count in names.items() if going[inode] < count),
        outside=frozenset(
            file.inode
            for item in revisions
            for file in item.files
            if file.links > names[file.inode]
        ),
    )


def last_used(item: StoredRevision, path: str, uses: LastUses) -> float:
    """What was never noted is as old as the revision."""
    return uses.get((item.prefix, item.digest, path), item.written_at)


def _units(item: StoredRevision, pins: Pins, uses: LastUses) -> list[Unit]:
    pinned = pins.by_revision.get((item.prefix, item.digest), {})
    if pinned and any(file.is_link for file in item.files):
        return []  # a pinned name leads to a file of another name
    known = {each.path for each in item.record.objects} if item.record is not None else set()
    groups: dict[float, list[StoredFile]] = {}
    for file in item.files:
        if file.path in pinned or (pinned and file.path not in known):
            continue
        groups.setdefault(last_used(item, file.path, uses), []).append(file)
    if not groups and not pinned and not item.files:
        groups = {item.written_at: []}  # a record of what was listed, and never fetched
    if not pinned and len(groups) > 1:
        groups = _with_strays(groups, known)
    units = []
    for at, files in groups.items():
        units.append(
            Unit(
                prefix=item.prefix,
                digest=item.digest,
                paths=frozenset(file.path for file in files),
                whole=len(groups) == 1 and not pinned,
                last_used=at,
                inodes={file.inode: file.size_bytes for file in files},
            )
        )
    return units


def _with_strays(
    groups: dict[float, list[StoredFile]], known: Collection[str]
) -> dict[float, list[StoredFile]]:
    """What the record does not know goes with what was used last."""
    newest = max(groups)
    strays = [file for files in groups.values() for file in files if file.path not in known]
    parted = {
        at: [file for file in files if file.path in known] + (strays if at == newest else [])
        for at, files in groups.items()
    }
    return {at: files for at, files in parted.items() if files}


def _digests(folder: str) -> set[str]:
    found = set()
    for entry in _entries(folder):
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.endswith(".evicted"):
                found.add(entry.name.removesuffix(".kept"))
        elif entry.name.endswith(".json"):
            found.add(entry.name.removesuffix(".json"))
    return found


def _revision(layout: Layout, prefix: str, digest: str, *, linked: bool) -> StoredRevision:
    record = load_record(layout.record(prefix, digest))
    folder = layout.folder(prefix, digest)
    written = 0.0
    for path in (layout.record(prefix, digest), folder):
        try:
            written = path.stat().st_mtime
            break
        except OSError:
            continue
    kept = files_of(os.fspath(layout.kept(prefix, digest)))
    return StoredRevision(
        prefix=prefix,
        digest=digest,
        record=record if record is not None and record.digest == digest else None,
        files=files_of(os.fspath(folder)),
        linked=linked,
        written_at=written,
        kept_bytes=sum({file.inode: file.size_bytes for file in kept}.values()),
    )


def files_of(folder: str) -> tuple[StoredFile, ...]:
    """All below a folder that are no folders; links are not followed."""
    found: list[StoredFile] = []
    folders = [folder]
    while folders:
        for entry in _entries(folders.pop()):
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                folders.append(entry.path)
                continue
            found.append(
                StoredFile(
                    path=os.path.relpath(entry.path, folder),
                    inode=(status.st_dev, status.st_ino),
                    size_bytes=status.st_blocks * _BLOCK_BYTES,
                    links=status.st_nlink,
                    is_link=stat.S_ISLNK(status.st_mode),
                )
            )
    return tuple(sorted(found, key=lambda file: file.path))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
