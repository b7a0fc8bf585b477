"""Caches with budgets, and what the tests of room ask of them."""

import os
from pathlib import Path

from reconciler.cache.budget import Budget
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.news import FilesEvicted
from reconciler.cache.pin_board import Owner
from reconciler.cache.pins import pins_of
from reconciler.cache.store import Store
from tests.cache.specs import put, spec

MIB = 2**20
NODE_A = Owner(node="node-a", data_dir="/a")
NODE_B = Owner(node="node-b", data_dir="/b")


def cache_of(
    tmp_path: Path, store: Store | None, mib: float | None = None, owner: Owner = NODE_A
) -> ModelCache:
    budget = None if mib is None else Budget(size_bytes=int(mib * MIB))
    cache = ModelCache(tmp_path / "models", store, owner=owner, budget=budget)
    cache.open()
    return cache


def push(folder: Path, name: str, *files: str) -> str:
    """A MiB a file."""
    for file in files or ("x.gguf",):
        put(folder, f"gguf/{name}/{file}", os.urandom(MIB))
    return f"gguf/{name}"


def pin(cache: ModelCache, **models: str) -> None:
    cache.keeper.pin(pins_of((name, cache.needed(spec(each))) for name, each in models.items()))


def is_noted(cache: ModelCache) -> bool:
    return not cache.keeper.unsaid


def evicted(cache: ModelCache) -> list[FilesEvicted]:
    return [news for news in cache.keeper.take_news() if isinstance(news, FilesEvicted)]
