"""The files of a prefix by its catalog: those of the push in force, or of an older one.

A catalog that cannot be used is never passed over in favour of what lies at plain paths: that may
be half of one push and half of another. Without a catalog, plain paths are all that there is.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from reconciler.errors import BadCatalog, Damaged, Gone, Rejected, Transient
from reconciler.hub.catalog import (
    CATALOG,
    CATALOGS,
    LIMIT_BYTES,
    PUSHES,
    Catalog,
    catalog_key,
    parse_catalog,
)
from reconciler.hub.nested import other_hub
from reconciler.hub.objects import HubObject, ObjectRef

_LOOKS = 3
"""Listings, where each differs from the one before: somebody pushes, or cleans up."""
_SHOWN_DIGESTS = 5
_OURS = ".xgen/"


class ReadableHub(Protocol):
    """Blocking. Raises Transient, or Rejected."""

    @property
    def location(self) -> str: ...

    def listing(self, prefix: str) -> Sequence[HubObject]:
        """All that lies under `prefix`/, the hub's own files too, sorted by path."""

    def read(
        self,
        stored: ObjectRef,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> None: ...


def files_of_revision(
    hub: ReadableHub, prefix: str, digest: str | None = None
) -> tuple[HubObject, ...]:
    """The files of the push in force, sorted by path; each has its SHA-256 from the catalog.

    `digest`: of this push, in hex. Where there is no catalog: what lies at plain paths, without
    SHA-256, whatever the digest; nothing while a first push is under way or was cut off. Raises
    Gone for a digest that the hub has not, or not all files of; BadCatalog for a
    catalog that cannot be used.
    """
    listing = hub.listing(prefix)
    for _ in range(_LOOKS - 1):
        try:
            return _files(hub, prefix, listing, digest)
        except Transient:
            before, listing = listing, hub.listing(prefix)
            if listing == before:
                raise
    return _files(hub, prefix, listing, digest)


def _files(
    hub: ReadableHub, prefix: str, listing: Sequence[HubObject], digest: str | None
) -> tuple[HubObject, ...]:
    stored = {item.path: item for item in listing}
    pinned = catalog_key(digest) if digest is not None else CATALOG
    if pinned in stored:
        catalog = _catalog(hub, prefix, stored[pinned])
        if digest not in (None, catalog.digest):
            raise Gone(
                f"cannot use catalog {prefix}/{pinned} in {hub.location}: it is not the one of "
                "its name; push that content again"
            )
        return _named(hub, prefix, catalog, stored)
    if CATALOG in stored:
        catalog = _catalog(hub, prefix, stored[CATALOG])
        if catalog.digest == digest:
            return _named(hub, prefix, catalog, stored)
        raise Gone(_no_such_digest(hub, prefix, str(digest), stored, catalog))
    if any(path.startswith(PUSHES) for path in stored):
        return ()
    if any(path.startswith(CATALOGS) for path in stored):
        raise BadCatalog(
            f"cannot use {prefix} in {hub.location}: its {CATALOG} is gone; push the model again"
        )
    if (other := other_hub(hub.location, prefix, stored)) is not None:
        raise Transient(str(other))
    return tuple(item for item in listing if not item.path.startswith(_OURS))


def _named(
    hub: ReadableHub, prefix: str, catalog: Catalog, stored: Mapping[str, HubObject]
) -> tuple[HubObject, ...]:
    found = []
    for file in catalog.files:
        item = stored.get(file.key)
        if item is None or item.size_bytes != file.size_bytes:
            there = "is missing" if item is None else f"has {item.size_bytes} bytes"
            raise Gone(
                f"cannot use {prefix} in {hub.location}: {file.key} {there}, and its catalog says "
                f"{file.size_bytes} bytes; push the model again"
            )
        found.append(replace(item, path=file.path, sha256=file.sha256))
    return tuple(sorted(found, key=lambda item: item.path))


def _catalog(hub: ReadableHub, prefix: str, stored: HubObject) -> Catalog:
    where = f"{prefix}/{stored.path} in {hub.location}"
    if stored.size_bytes > LIMIT_BYTES:
        raise BadCatalog(f"cannot read catalog {where}: it has {stored.size_bytes} bytes")
    with tempfile.TemporaryFile() as file:
        try:
            hub.read(stored, file.fileno(), on_bytes=lambda _: None, cancelled=lambda: False)
        except Damaged as exc:  # it is small, and every look at the hub reads it anew
            raise Transient(str(exc)) from exc
        file.seek(0)
        content = file.read()
    try:
        return parse_catalog(content, where)
    except Rejected as exc:
        raise BadCatalog(f"{exc}; `xgen-model hub push` writes it anew") from exc


def _no_such_digest(
    hub: ReadableHub, prefix: str, digest: str, stored: Mapping[str, HubObject], current: Catalog
) -> str:
    older = [
        path.removeprefix(CATALOGS).removesuffix(".json")
        for path in stored
        if path.startswith(CATALOGS) and path != catalog_key(current.digest)
    ]
    known = [f"{current.digest} (in force)", *older[:_SHOWN_DIGESTS]]
    more = f" and {len(older) - _SHOWN_DIGESTS} more" if len(older) > _SHOWN_DIGESTS else ""
    return (
        f"cannot fetch digest {digest} of {prefix}: {hub.location} does not have it; it has "
        f"{', '.join(known)}{more}"
    )
