"""Specs and hubs for the tests of the cache, with defaults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconciler.hub.directory import DirectoryStore
from reconciler.plan.desired import ModelSpec


def spec(source: str = "gguf/org_name", **changes: Any) -> ModelSpec:
    return ModelSpec(source=source, **changes)


def put(folder: Path, key: str, content: bytes = b"weights") -> Path:
    path = folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class CountingStore(DirectoryStore):
    """A hub in a folder that remembers what was asked of it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_keys: list[str] = []
        self.listed = 0
        self.on_listing: Callable[[int], None] = lambda _looks: None

    def objects(self, prefix: str, digest: str | None = None) -> Any:
        self.listed += 1
        self.on_listing(self.listed)
        return super().objects(prefix, digest)

    def read(self, stored: Any, fd: int, **callbacks: Any) -> None:
        self.read_keys.append(stored.key)
        super().read(stored, fd, **callbacks)
