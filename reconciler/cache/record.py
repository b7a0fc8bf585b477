"""The record of a revision: all that its prefix held, and which of it is here and verified."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reconciler.cache.digests import files_digest
from reconciler.cache.layout import replace_json
from reconciler.cache.store import StoredObject
from reconciler.plan.ids import FilesDigest

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedObject:
    """One object as it was listed."""

    path: str
    key: str
    size_bytes: int
    version: str
    md5: str | None = None
    sha256: str | None = None

    def is_same_file(self, other: "RecordedObject") -> bool:
        """One content at one path; wherever it lies, where catalogs tell what it is."""
        if self.sha256 is None or other.sha256 is None:
            return self == other
        mine = (self.path, self.size_bytes, self.sha256)
        return mine == (other.path, other.size_bytes, other.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`digest`: of all `objects`. `present`: paths whose files are published.

    `main_ref`: what refs/main said, where the prefix has one. `former`: the versions under which
    files were here before a catalog said that these are their contents, by path.
    """

    digest: FilesDigest
    objects: tuple[RecordedObject, ...]
    present: frozenset[str] = frozenset()
    main_ref: str | None = None
    former: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        return {item.path: item.size_bytes for item in self.objects}

    @property
    def is_verified(self) -> bool:
        """Whether a catalog told the contents, so that the digest is over these."""
        return _are_verified(self.objects)

    def with_present(self, paths: Iterable[str]) -> "Record":
        return replace(self, present=self.present.union(paths))

    def digest_of(self, paths: Iterable[str]) -> FilesDigest:
        """The digest of some of the objects: a model's."""
        wanted = frozenset(paths)
        return _digest([item for item in self.objects if item.path in wanted])

    def former_digest_of(self, paths: Iterable[str]) -> FilesDigest | None:
        """The digest that they had before there was a catalog; None: they were not here then."""
        wanted = frozenset(paths)
        if not wanted or not wanted.issubset(self.former):
            return None
        sizes = self.sizes
        return files_digest((path, sizes[path], self.former[path]) for path in wanted)


def new_record(listing: Sequence[StoredObject], main_ref: str | None) -> Record:
    objects = tuple(
        RecordedObject(
            path=item.path,
            key=item.key,
            size_bytes=item.size_bytes,
            version=item.version,
            md5=item.md5,
            sha256=item.sha256,
        )
        for item in listing
    )
    return Record(digest=_digest(objects), objects=objects, main_ref=main_ref)


def load_record(path: Path) -> Record | None:
    """None where there is none, or not a whole one: its files then count as not fetched."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        if data["version"] != _VERSION:
            return None
        objects = tuple(RecordedObject(**item) for item in data["objects"])
        record = Record(
            digest=FilesDigest(data["digest"]),
            objects=objects,
            present=frozenset(data["present"]),
            main_ref=data["main_ref"],
            former=dict(data.get("former", {})),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if record.digest == _digest(objects) else None


def save_record(record: Record, path: Path) -> None:
    """Replace the record, on disk when this returns. The prefix's lock is held."""
    data = {
        "version": _VERSION,
        "digest": record.digest,
        "main_ref": record.main_ref,
        "present": sorted(record.present),
        "former": dict(record.former),
        "objects": [
            {
                "path": item.path,
                "key": item.key,
                "size_bytes": item.size_bytes,
                "version": item.version,
                "md5": item.md5,
                "sha256": item.sha256,
            }
            for item in record.objects
        ],
    }
    replace_json(path, data)


def _digest(objects: Sequence[RecordedObject]) -> FilesDigest:
    """Over the contents where all are known (then it is the catalog's), else over the versions."""
    if _are_verified(objects):
        return files_digest((item.path, item.size_bytes, item.sha256 or "") for item in objects)
    return files_digest((item.path, item.size_bytes, item.version) for item in objects)


def _are_verified(objects: Sequence[RecordedObject]) -> bool:
    return bool(objects) and all(item.sha256 is not None for item in objects)
