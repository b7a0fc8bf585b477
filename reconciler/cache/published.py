"""What is published in the cache, found without the network and without opening model files."""

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reconciler.cache.choose import Wish, choose
from reconciler.cache.layout import Layout
from reconciler.cache.pins import Holding
from reconciler.cache.record import Record, load_record
from reconciler.cache.stamps import Stamp, load_stamps
from reconciler.errors import XgenError
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached

Link = tuple[str, int, int]
"""What a prefix's link says, and device and inode of the folder that it stands in."""
Signature = tuple[Link | None, int, int]
"""The prefix's link, and inode and mtime of its folder of records. Records and stamps are replaced
by a rename in there, so one look tells that any of them is another now."""
_NOTHING: Signature = (None, 0, 0)
_CLOCK_GRAIN_NS = 10**8
"""Kernels stamp changes with their tick, of 10 ms at most; within it two have the same mtime."""


class Standing(StrEnum):
    """Of files on disk. CHANGED: they may be other ones than those that were published."""

    HOLDS = "holds"
    CHANGED = "changed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """`stamp`: how it looked when it was right, where anybody knows."""

    path: str
    size_bytes: int
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A revision that was complete when its record was written, and a model's files in it."""

    files: FilesCached
    holding: Holding
    listed: tuple[PublishedFile, ...]

    def standing(self) -> Standing:
        """Whether every file is there, as large as it was, and looks as it did: a `stat` each."""
        found = Standing.HOLDS
        try:
            for file in self.listed:
                status = os.stat(file.path)
                if status.st_size != file.size_bytes or not stat.S_ISREG(status.st_mode):
                    return Standing.LOST
                if file.stamp is not None and not file.stamp.is_of(status):
                    found = Standing.CHANGED
        except OSError:
            return Standing.LOST
        return found


@dataclass(frozen=True, slots=True)
class _Places:
    """A prefix's folder of records and its link, as the kernel is asked for them at each tick."""

    revisions: str
    link: str
    parent: str


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates for one wish, best first, as of one state of the prefix.

    `settled`: it was seen so long after its change that another one would show in the mtime.
    """

    signature: Signature
    settled: bool
    candidates: tuple[Candidate, ...]


class Published:
    """Looks models up, and remembers what the records said while they stay the same."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._memory: dict[tuple[str, Wish, str | None], Found] = {}
        self._retired: set[tuple[str, FilesDigest]] = set()
        self._places: dict[str, _Places] = {}
        self._holdings: dict[FilesDigest, Holding] = {}
        self._trusted: dict[str, Stamp] = {}

    def find(self, prefix: str, wish: Wish, digest: str | None) -> FilesCached | None:
        """The files of a wish, from the linked revision first; `digest`: from that one only.

        None also where they look changed, until somebody has checked them.
        """
        found = self._best(prefix, wish, digest)
        return found[0].files if found is not None and found[1] is Standing.HOLDS else None

    def owed(self, prefix: str, wish: Wish, digest: str | None) -> Holding | None:
        """What is in force for a wish, and to be made whole before another revision is taken.

        Also of the linked revision, where some of the wish is here and the rest was not wanted.
        """
        for item in self._found(prefix, wish, digest):
            if not self._is_retired(prefix, item.files.digest, digest):
                return item.holding
        linked = self._layout.linked_digest(prefix)
        for record in self._records(prefix, digest):
            holding = _holding(prefix, wish, record) if record.digest == linked else None
            if holding is None or record.present.isdisjoint(holding.paths):
                continue
            if not self._is_retired(prefix, record.digest_of(holding.paths), digest):
                return holding
        return None

    def needed(self, prefix: str, wish: Wish, digest: str | None) -> tuple[Holding, ...]:
        """What must stay for a wish: what serves it, else all that a fetch may go on from.

        Not what was retired: that may make room for what comes instead.
        """
        found = self._best(prefix, wish, digest)
        if found is not None:
            return (found[0].holding,)
        return tuple(
            holding
            for record in self._records(prefix, digest)
            if (holding := _holding(prefix, wish, record)) is not None
            and not self._is_retired(prefix, record.digest_of(holding.paths), digest)
        )

    def holding_of(self, digest: FilesDigest) -> Holding | None:
        """Where the files of this digest stand, if they were found since the start."""
        return self._holdings.get(digest)

    def _best(
        self, prefix: str, wish: Wish, digest: str | None
    ) -> tuple[Candidate, Standing] | None:
        """The first. One that looks changed, or lost a file, is not passed over: with others, a
        running model would be started anew for nothing."""
        for item in self._found(prefix, wish, digest):
            if not self._is_retired(prefix, item.files.digest, digest):
                standing = item.standing()
                return None if standing is Standing.LOST else (item, standing)
        return None

    def _is_retired(self, prefix: str, files: FilesDigest, digest: str | None) -> bool:
        return digest is None and (prefix, files) in self._retired

    def retire(self, prefix: str, wish: Wish, keep: FilesDigest) -> None:
        """Find only these files for a wish, in this process's life: the others proved bad.

        What a digest asks for is found all the same.
        """
        for item in self._found(prefix, wish, None):
            if item.files.digest != keep:
                self._retired.add((prefix, item.files.digest))
        self.reinstate(prefix, keep)

    def reinstate(self, prefix: str, digest: FilesDigest) -> None:
        """The hub holds them, so there is nothing better."""
        self._retired.discard((prefix, digest))

    def _found(self, prefix: str, wish: Wish, digest: str | None) -> tuple[Candidate, ...]:
        signature = self._signature(prefix)
        key = (prefix, wish, digest)
        found = self._memory.get(key)
        if found is None or found.signature != signature or not found.settled:
            settled = abs(time.time_ns() - signature[2]) > _CLOCK_GRAIN_NS
            found = Found(signature, settled, self._candidates(prefix, wish, digest))
            self._memory[key] = found
        return found.candidates

    def trust(self, stamps: Mapping[str, Stamp]) -> None:
        """Read the records again, and hold these to be the stamps of files, by absolute path."""
        self._trusted |= stamps
        self.forget()

    def forget(self) -> None:
        """Read the records again: after one was written, whatever the clock's grain."""
        self._memory.clear()

    def _signature(self, prefix: str) -> Signature:
        places = self._places_of(prefix)
        try:
            status = os.stat(places.revisions)
        except FileNotFoundError:  # what was never fetched is looked up at every tick, too
            return _NOTHING
        return _link(places), status.st_ino, status.st_mtime_ns

    def _places_of(self, prefix: str) -> _Places:
        """A `Path` costs more than the system call that it is made for."""
        places = self._places.get(prefix)
        if places is None:
            link = self._layout.link(prefix)
            places = self._places[prefix] = _Places(
                revisions=str(self._layout.revisions(prefix)),
                link=str(link),
                parent=str(link.parent),
            )
        return places

    def _records(self, prefix: str, digest: str | None) -> tuple[Record, ...]:
        """Those that can be read, of the linked revision first, then the newest."""
        linked = self._layout.linked_digest(prefix)
        paths = sorted(
            self._layout.revisions(prefix).glob("*.json"),
            key=lambda path: (path.stem == linked, path.stat().st_mtime_ns),
            reverse=True,
        )
        found = []
        for path in paths:
            record = load_record(path)
            if record is None or record.digest != path.stem or digest not in (None, record.digest):
                continue
            found.append(record)
        return tuple(found)

    def _candidates(self, prefix: str, wish: Wish, digest: str | None) -> tuple[Candidate, ...]:
        found = (self._candidate(prefix, wish, item) for item in self._records(prefix, digest))
        return tuple(item for item in found if item is not None)

    def _candidate(self, prefix: str, wish: Wish, record: Record) -> Candidate | None:
        sizes = record.sizes
        try:
            choice = choose(sizes, wish, record.main_ref)
        except XgenError:
            return None
        if not record.present.issuperset(choice.paths):
            return None
        folder = os.path.realpath(self._layout.folder(prefix, record.digest))
        full = {path: os.path.join(folder, path) for path in choice.paths}
        root = os.path.join(folder, choice.root) if choice.root else folder
        files = FilesCached(
            digest=record.digest_of(choice.paths),
            path=full.get(choice.main, root),
            root=root,
            format=choice.format,
            mmproj=full[choice.mmproj] if choice.mmproj else None,
            size_bytes=sum(sizes[path] for path in choice.paths),
            revision=record.digest,
            verified=record.is_verified,
            former=record.former_digest_of(choice.paths),
        )
        holding = Holding(prefix=prefix, digest=record.digest, paths=frozenset(choice.paths))
        self._holdings[files.digest] = holding
        stamps = load_stamps(self._layout.stamps(prefix, record.digest))
        listed = (
            PublishedFile(
                full[path], sizes[path], self._trusted.get(full[path]) or stamps.get(path)
            )
            for path in choice.paths
        )
        return Candidate(files, holding, tuple(listed))


def _holding(prefix: str, wish: Wish, record: Record) -> Holding | None:
    """All that the wish needs of a revision; None where it does not have it."""
    try:
        paths = choose(record.sizes, wish, record.main_ref).paths
    except XgenError:
        return None
    return Holding(prefix=prefix, digest=record.digest, paths=frozenset(paths))


def _link(places: _Places) -> Link | None:
    try:
        leads_to = os.readlink(places.link)
        parent = os.stat(places.parent)
    except OSError:
        return None
    return leads_to, parent.st_dev, parent.st_ino
