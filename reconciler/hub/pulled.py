"""The catalog that stays with a folder of pulled files: what a push of them elsewhere must know.

It lies at `.xgen/catalog.json`, as in a hub, and names every file at its own path.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.atomic_file import replace_file
from reconciler.errors import Rejected, Transient
from reconciler.hub.catalog import (
    CATALOG,
    CATALOGS,
    LIMIT_BYTES,
    OBJECTS,
    PUSHES,
    Catalog,
    Facts,
    digest_of,
    dump_catalog,
    parse_catalog,
)


def part_of(catalog: Catalog, paths: Collection[str]) -> Catalog:
    """What it says of these files alone (PURE). They lie at their own paths."""
    files = tuple(
        msgspec.structs.replace(file, key=file.path) for file in catalog.files if file.path in paths
    )
    is_whole = len(files) == len(catalog.files)
    return msgspec.structs.replace(
        catalog,
        digest=digest_of(files),
        facts=catalog.facts if is_whole else Facts(format=catalog.facts.format),
        files=files,
    )


def check_outside_hubs(folder: Path, hub: str) -> None:
    """Raises Rejected for a folder in `hub`, or in another that can be seen by its records."""
    real = Path(os.path.realpath(folder))
    around = [real, *real.parents]
    with suppress(OSError):
        around += real.parent.iterdir()
    is_in_it = "://" not in hub and real.is_relative_to(os.path.realpath(hub))
    if is_in_it or any(map(_has_records, around)):
        raise Rejected(
            f"cannot pull into {folder}: it lies in a hub, which would take it for a model; give "
            "another folder"
        )


def _has_records(folder: Path) -> bool:
    """Of pushes: it is a prefix of a hub."""
    return any(os.path.exists(folder / below) for below in (CATALOGS, OBJECTS, PUSHES))


def save_pulled(folder: Path, catalog: Catalog) -> None:
    """On disk when this returns. Raises OSError."""
    replace_file(folder / CATALOG, dump_catalog(catalog), mode=0o666)


def pulled_catalog(folder: Path) -> Catalog | None:
    """What the folder was pulled as; None: it was not. Raises Rejected where that is damaged."""
    path = folder / CATALOG
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise Transient(f"cannot read {path}: {exc.strerror}") from exc
    try:
        return parse_catalog(content, str(path))
    except Rejected as exc:
        raise Rejected(f"{exc}; remove it, or pull the model again") from exc
