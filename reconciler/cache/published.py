"""What is published in the cache, found without the network and without opening model files."""

import os
import stat
from dataclasses import dataclass

from reconciler.cache.choose import Wish, choose
from reconciler.cache.layout import Layout
from reconciler.cache.record import Record, load_record
from reconciler.errors import XgenError
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached

Link = tuple[str, int, int]
"""What a prefix's link says, and device and inode of the folder that it stands in."""
Signature = tuple[Link | None, tuple[tuple[str, int, int], ...]]
"""The prefix's link, and name, inode and mtime of each record: changes with any of them."""
_NOTHING: Signature = (None, ())


@dataclass(frozen=True, slots=True)
class Candidate:
    """A revision that was complete when its record was written. `sizes`: by absolute path."""

    files: FilesCached
    sizes: tuple[tuple[str, int], ...]

    def holds(self) -> bool:
        """Whether every file is still there, and as large as it was."""
        try:
            for path, size_bytes in self.sizes:
                status = os.stat(path)
                if status.st_size != size_bytes or not stat.S_ISREG(status.st_mode):
                    return False
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Places:
    """A prefix's folder of records and its link, as the kernel is asked for them at each tick."""

    revisions: str
    link: str
    parent: str


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates for one wish, best first, as of one state of the prefix."""

    signature: Signature
    candidates: tuple[Candidate, ...]


class Published:
    """Looks models up, and remembers what the records said while they stay the same."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._memory: dict[tuple[str, Wish, str | None], Found] = {}
        self._retired: set[tuple[str, FilesDigest]] = set()
        self._places: dict[str, _Places] = {}

    def find(self, prefix: str, wish: Wish, digest: str | None) -> FilesCached | None:
        """The files of a wish, from the linked revision first; `digest`: from that one only."""
        found = self._found(prefix, wish, digest)
        if digest is None and self._retired:
            found = tuple(i for i in found if (prefix, i.files.digest) not in self._retired)
        return next((item.files for item in found if item.holds()), None)

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
        if found is None or found.signature != signature:
            found = Found(signature, self._candidates(prefix, wish, digest))
            self._memory[key] = found
        return found.candidates

    def forget(self) -> None:
        """Read the records again: after one was written, whatever the clock's grain."""
        self._memory.clear()

    def _signature(self, prefix: str) -> Signature:
        places = self._places_of(prefix)
        records = []
        try:
            with os.scandir(places.revisions) as entries:
                for entry in entries:
                    if entry.name.endswith(".json"):
                        status = entry.stat()
                        records.append((entry.name, status.st_ino, status.st_mtime_ns))
        except FileNotFoundError:
            return _NOTHING
        if not records:  # what was never fetched is looked up at every tick, too
            return _NOTHING
        records.sort()
        return _link(places), tuple(records)

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

    def _candidates(self, prefix: str, wish: Wish, digest: str | None) -> tuple[Candidate, ...]:
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
            candidate = self._candidate(prefix, wish, record)
            if candidate is not None:
                found.append(candidate)
        return tuple(found)

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
        return Candidate(files, tuple((full[path], sizes[path]) for path in choice.paths))


def _link(places: _Places) -> Link | None:
    try:
        leads_to = os.readlink(places.link)
        parent = os.stat(places.parent)
    except OSError:
        return None
    return leads_to, parent.st_dev, parent.st_ino
