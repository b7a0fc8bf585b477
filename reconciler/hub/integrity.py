"""Whether a hub still holds what a catalog says."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.hub.catalog import Catalog, CatalogFile
from reconciler.hub.in_parallel import in_parallel
from reconciler.hub.prefix_state import PrefixState
from reconciler.hub.writable import Watch, WritableHub


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFile:
    """`cause`: a clause for people."""

    path: str
    key: str
    cause: str


def bad_by_size(catalog: Catalog, state: PrefixState) -> tuple[BadFile, ...]:
    """Files that are not there, or not as large as they should be (PURE)."""
    found = []
    for file in catalog.files:
        stored = state.stored.get(file.key)
        if stored is None:
            found.append(_bad(file, "it is missing"))
        elif stored.size_bytes != file.size_bytes:
            found.append(_bad(file, f"it has {stored.size_bytes} bytes, not {file.size_bytes}"))
    return tuple(found)


def bad_by_content(
    hub: WritableHub, prefix: str, files: tuple[CatalogFile, ...], on_bytes: Callable[[int], None]
) -> tuple[BadFile, ...]:
    """Read every file, and compare its SHA-256. Raises Transient where the hub is away."""

    def read(file: CatalogFile, watch: Watch) -> BadFile | None:
        sha256, size = hashlib.sha256(), 0
        for piece in hub.read(prefix, file.key):
            watch.check()
            watch.on_bytes(len(piece))
            sha256.update(piece)
            size += len(piece)
        if sha256.hexdigest() == file.sha256:
            return None
        if size != file.size_bytes:
            return _bad(file, f"{size} of its {file.size_bytes} bytes can be read")
        return _bad(file, "its content is not what was pushed")

    return tuple(each for each in in_parallel(read, files, on_bytes) if each is not None)


def _bad(file: CatalogFile, cause: str) -> BadFile:
    return BadFile(path=file.path, key=file.key, cause=cause)
