"""Caches opened for a test, and what is left of their work."""

import os
from pathlib import Path

from reconciler.cache.importer import Importer
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.store import Store
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import FilesDigest

BIG = os.urandom(2 * 1024 * 1024 + 3)


def opened(
    tmp_path: Path,
    store: Store | None,
    *,
    allowed_file_roots: tuple[Path, ...] | None = None,
    importer: Importer | None = None,
) -> ModelCache:
    cache = ModelCache(
        tmp_path / "models", store, allowed_file_roots=allowed_file_roots, importer=importer
    )
    cache.open()
    return cache


def listed(cache: ModelCache, wanted: ModelSpec) -> FilesDigest:
    """What the hub holds for it now."""
    digest = cache.listed_digest(wanted)
    assert digest is not None
    return digest


def remains(tmp_path: Path) -> list[str]:
    """Names in `.partial` beside its lock."""
    return [path.name for path in (tmp_path / "models/.partial").iterdir() if path.name != ".lock"]
