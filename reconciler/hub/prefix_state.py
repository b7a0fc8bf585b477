"""What a prefix holds now: its objects, its catalogs, and pushes that have not ended."""

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.errors import Rejected
from reconciler.hub.catalog import (
    CATALOG,
    CATALOGS,
    LIMIT_BYTES,
    PUSHES,
    Catalog,
    CatalogFile,
    catalog_key,
    parse_catalog,
)
from reconciler.hub.nested import other_hub
from reconciler.hub.writable import Stored, WritableHub

_CLOCK_GRAIN_SECONDS = 2.0
"""Some stores tell times in whole seconds, FAT in two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A catalog that was pushed. `written_at`: seconds since 1970, by the store's clock."""

    catalog: Catalog
    written_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixState:
    """`stored`: by key. `current`: the catalog in force; `in_force`: its bytes, damaged or not.
    `pushed`: every catalog, that in force first, then the newest.

    `damaged`: what is wrong with a catalog, by its key. `pushes`: begun and not ended.
    """

    prefix: str
    stored: Mapping[str, Stored]
    in_force: bytes | None
    current: Catalog | None
    pushed: tuple[Pushed, ...]
    damaged: Mapping[str, str]

    @property
    def pushes(self) -> tuple[Stored, ...]:
        return tuple(each for key, each in self.stored.items() if key.startswith(PUSHES))

    @property
    def plain(self) -> tuple[Stored, ...]:
        """What lies at plain paths: all that there is without a catalog. No folder markers."""
        return tuple(
            each
            for key, each in self.stored.items()
            if not key.startswith(".xgen/") and key and not key.endswith("/")
        )

    def has(self, file: CatalogFile) -> bool:
        """Whether something of that size lies where a catalog says that the file is."""
        stored = self.stored.get(file.key)
        return stored is not None and stored.size_bytes == file.size_bytes

    def untouched(self, file: CatalogFile, since: Pushed) -> bool:
        """Whether nobody wrote to a catalog's file later: other tools can, at plain paths."""
        stored = self.stored.get(file.key)
        return (
            stored is not None
            and stored.size_bytes == file.size_bytes
            and stored.modified_at <= since.written_at + _CLOCK_GRAIN_SECONDS
        )

    def is_as_pushed(self, file: CatalogFile) -> bool:
        """Whether nobody wrote to a file of the catalog in force since that was written."""
        in_force = self.current.digest if self.current is not None else None
        return any(
            self.untouched(file, each) for each in self.pushed if each.catalog.digest == in_force
        )


def read_state(hub: WritableHub, prefix: str) -> PrefixState:
    """One listing, and every catalog in it. Raises OtherHub where another hub's models lie."""
    stored = {each.key: each for each in hub.stored(prefix)}
    if (other := other_hub(hub.location, prefix, stored)) is not None:
        raise other
    damaged: dict[str, str] = {}
    pushed = []
    for key, each in stored.items():
        if key.startswith(CATALOGS) and key.endswith(".json"):
            catalog = _parsed(_loaded(hub, prefix, key), prefix, key, damaged)
            if catalog is not None and catalog_key(catalog.digest) != key:
                damaged[key] = f"cannot use catalog {prefix}/{key}: it is not the one of its name"
            elif catalog is not None:
                pushed.append(Pushed(catalog=catalog, written_at=each.modified_at))
    in_force = _loaded(hub, prefix, CATALOG) if CATALOG in stored else None
    current = None if in_force is None else _parsed(in_force, prefix, CATALOG, damaged)
    digest = current.digest if current is not None else None
    pushed.sort(  # some stores tell whole seconds
        key=lambda each: (
            each.catalog.digest == digest,
            each.written_at,
            each.catalog.pushed_at,
        ),
        reverse=True,
    )
    return PrefixState(
        prefix=prefix,
        stored=stored,
        in_force=in_force,
        current=current,
        pushed=tuple(pushed),
        damaged=damaged,
    )


def read_current(hub: WritableHub, prefix: str) -> Catalog:
    """The catalog in force, of a prefix that has one. Raises Rejected where it is damaged."""
    return parse_catalog(_loaded(hub, prefix, CATALOG), f"{prefix}/{CATALOG}")


def _loaded(hub: WritableHub, prefix: str, key: str) -> bytes:
    return hub.load(prefix, key, LIMIT_BYTES + 1)


def _parsed(content: bytes, prefix: str, key: str, damaged: dict[str, str]) -> Catalog | None:
    try:
        return parse_catalog(content, f"{prefix}/{key}")
    except Rejected as exc:
        damaged[key] = str(exc)
        return None
