"""A node that imports with the real huggingface_hub, from a hub of our own.

Import `hub`, `servers`, `upstream`, `folder_hub` and `importer` into a test module to have them.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.cache.choose import Wish, choose_for_import
from reconciler.hub.catalog import CATALOG, Catalog, Facts, parse_catalog
from reconciler.hub.huggingface import Imported, ImportOrder, Judgement, import_model
from reconciler.hub.local_files import LocalFile
from reconciler.plan.desired import Format
from reconciler.plan.repository import parse_repository, prefix_of
from tests.fake_hf_hub import FakeHub, Repo, serve_fake_hub
from tests.hub.hubs import Hub, Servers, hub, new_hub, servers
from tests.hub.test_push import no_check, no_facts

__all__ = ["folder_hub", "hub", "importer", "servers", "upstream"]

WEIGHTS = random.Random(2).randbytes(300_000)
MODEL = {
    "config.json": b'{"architectures": ["X"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "onnx/model.onnx": b"graph",
    ".gitattributes": b"*.bin filter=lfs",
    "README.md": b"# model",
}
CHOSEN = {path: MODEL[path] for path in ("config.json", "tokenizer.json", "model.safetensors")}
TOKEN = "hf_a-token-that-nobody-should-see"


@pytest.fixture
def upstream() -> Iterator[FakeHub]:
    quants = {f"m-{name}.gguf": name.encode() * 50_000 for name in ("Q4", "Q8")}
    repos = {
        "org/m": Repo(files=MODEL, revisions=("main", "v1", "refs/pr/1")),
        "org/m-GGUF": Repo(files=quants | {"mmproj-F16.gguf": b"projector"}, licence="mit"),
        "org/gated": Repo(files=MODEL, needs_token=TOKEN),
    }
    with serve_fake_hub(repos) as fake:
        yield fake


@pytest.fixture
def folder_hub(servers: Servers, tmp_path: Path) -> Iterator[Hub]:
    with new_hub("directory", servers, tmp_path) as made:
        yield made


@dataclass
class Steps:
    """What was told. `at`, `at_upload`: called with each number of bytes that are there."""

    at: Callable[[int], None] = lambda _: None
    at_upload: Callable[[int], None] = lambda _: None
    downloads: list[tuple[int, int]] = field(default_factory=list)
    uploads: list[tuple[int, int]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def downloading(self, done: int, total: int) -> None:
        self.downloads.append((done, total))
        self.at(done)

    def uploading(self, done: int, total: int) -> None:
        self.uploads.append((done, total))
        self.at_upload(done)

    def cancelled(self) -> bool:
        return self.stop.is_set()


@dataclass(kw_only=True)
class Importer:
    """A node: its hub, its folder, the Hugging Face that it asks."""

    upstream: FakeHub
    hub: Hub
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(
        self,
        text: str,
        steps: Steps | None = None,
        *,
        file: str | None = None,
        describe: Callable[[Sequence[LocalFile]], Facts] = no_facts,
        **more: bool,
    ) -> Imported:
        repository = parse_repository(text)
        prefix = prefix_of(repository, file=file, format=Format.AUTO)
        wish = Wish(where=prefix, file=file, format=Format.AUTO)
        order = ImportOrder(
            repository=repository,
            prefix=prefix,
            folder=self.folder / "an-import",
            pushed_at="2026-11-30T12:00:00Z",
            environment={
                **os.environ,
                **self.upstream.environment,
                "HF_HOME": str(self.folder.parent / "hf-home"),
                **self.environment,
            },
            judgement=Judgement(
                choose=lambda sizes: choose_for_import(sizes, wish),
                check_names=no_check,
                describe=describe,
            ),
            **more,
        )
        return import_model(self.hub.writer, order, steps or Steps())

    def catalog(self, prefix: str) -> Catalog:
        return parse_catalog(self.hub.writer.load(prefix, CATALOG, 1 << 20), prefix)

    @property
    def left(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def importer(upstream: FakeHub, folder_hub: Hub, tmp_path: Path) -> Importer:
    return Importer(upstream=upstream, hub=folder_hub, folder=tmp_path / "imports")
