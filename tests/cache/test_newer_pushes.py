"""What the hub holds instead of what is here; and a catalog that appears for what is here."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.cache.store import Store
from reconciler.errors import Damaged
from reconciler.hub.directory import DirectoryStore
from tests.cache.caches import opened
from tests.cache.specs import CountingStore, put, spec
from tests.cache.test_catalogued import PREFIX, pushed


def test_a_newer_push_is_told_and_nothing_else(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    folder, store = hub
    pushed(folder, {"x.gguf": b"first", "README.md": b""}, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    files = cache.fetch(spec())
    assert cache.newer_push(spec()) is None

    newer = pushed(folder, {"x.gguf": b"second", "README.md": b""}, source=tmp_path / "v2")
    push = cache.newer_push(spec())

    assert push is not None
    assert push.revision == newer.digest != push.digest
    assert cache.lookup(spec()) == cache.fetch(spec()) == files


def test_a_push_of_other_files_than_the_models_is_no_newer_one(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    pushed(folder, {"x.gguf": b"first", "README.md": b"1"}, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    cache.fetch(spec())
    pushed(folder, {"x.gguf": b"first", "README.md": b"2"}, source=tmp_path / "v2")

    assert cache.newer_push(spec()) is None


def test_a_refresh_brings_it_beside_the_old_one(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    folder, store = hub
    files = {"config.json": b"{}", "model.safetensors": b"first"}
    pushed(folder, files, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    old = cache.fetch(spec())
    pushed(folder, files | {"model.safetensors": b"second"}, source=tmp_path / "v2")
    push = cache.newer_push(spec())
    assert push is not None

    cache.refresh(spec())

    new = cache.lookup(spec())
    assert new is not None
    assert (new.digest, new.revision) == (push.digest, push.revision)
    assert (Path(old.root) / "model.safetensors").read_bytes() == b"first"
    assert (Path(new.root) / "model.safetensors").read_bytes() == b"second"
    assert os.path.samefile(Path(old.root) / "config.json", Path(new.root) / "config.json")
    assert cache.newer_push(spec()) is None
    assert opened(tmp_path, None).lookup(spec()) == new


def test_a_refresh_that_fails_leaves_what_is_here(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    pushed(hub, {"x.gguf": b"first"}, source=tmp_path / "v1")
    cache = opened(tmp_path, DirectoryStore(hub))
    old = cache.fetch(spec())
    newer = pushed(hub, {"x.gguf": b"second"}, source=tmp_path / "v2")
    changed = next((hub / PREFIX / ".xgen/objects").iterdir())
    changed.write_bytes(b"SECOND")

    with pytest.raises(Damaged, match="does not match its sha256"):
        cache.refresh(spec())

    assert cache.lookup(spec()) == old
    push = cache.newer_push(spec())
    assert push is not None
    assert push.revision == newer.digest
    assert "does not match its sha256" in str(push.damaged)


def test_a_catalog_for_what_is_here_gives_it_a_new_digest_and_fetches_nothing(
    tmp_path: Path,
) -> None:
    """R4: the model that runs is told by the digest that it had."""
    hub = tmp_path / "hub"
    put(hub, f"{PREFIX}/x.gguf", b"weights")
    put(hub, f"{PREFIX}/y.gguf", b"others")
    store = CountingStore(hub)
    cache = opened(tmp_path, store)
    before = cache.fetch(spec(file="x.gguf"))
    store.read_keys.clear()
    catalog = pushed(hub, {"x.gguf": b"weights", "y.gguf": b"others"}, source=tmp_path / "v1")

    assert cache.newer_push(spec(file="x.gguf")) is None

    after = cache.lookup(spec(file="x.gguf"))
    assert after is not None
    assert (after.verified, after.former, after.revision) == (True, before.digest, catalog.digest)
    assert after.digest != before.digest
    assert os.path.samefile(before.path, after.path)
    assert [key for key in store.read_keys if ".xgen" not in key] == []
    assert opened(tmp_path, None).lookup(spec(file="x.gguf")) == after
    assert cache.lookup(spec(file="x.gguf", digest=before.revision)) == before
    other = cache.fetch(spec(file="y.gguf"))
    assert (other.revision, other.former) == (catalog.digest, None)
    assert cache.lookup(spec(file="x.gguf")) == after


def test_a_catalog_of_other_contents_as_large_as_those_here_is_a_newer_push(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    put(hub, f"{PREFIX}/x.gguf", b"weights")
    cache = opened(tmp_path, DirectoryStore(hub))
    before = cache.fetch(spec())
    shutil.rmtree(hub / PREFIX)
    catalog = pushed(hub, {"x.gguf": b"weightz"}, source=tmp_path / "v1")

    for _ in range(2):
        push = cache.newer_push(spec())
        assert push is not None
        assert push.revision == catalog.digest
    assert cache.lookup(spec()) == before


@pytest.mark.parametrize("content", [b"weights", b"weightz"])
def test_a_folder_of_an_older_installation_is_read_and_compared(
    tmp_path: Path, content: bytes
) -> None:
    """By size alone it would pass (ollama#17520: zeros that pass as a model)."""
    hub = tmp_path / "hub"
    hub.mkdir()
    pushed(hub, {"x.gguf": b"weights"}, source=tmp_path / "v1")
    put(tmp_path / "models", f"{PREFIX}/x.gguf", content)
    store = CountingStore(hub)

    files = opened(tmp_path, store).fetch(spec())

    assert Path(files.path).read_bytes() == b"weights"
    fetched = [key for key in store.read_keys if ".xgen" not in key]
    assert fetched == ([] if content == b"weights" else [f"{PREFIX}/x.gguf"])


@pytest.mark.parametrize(
    "change",
    [
        lambda _: spec(digest="0" * 64),
        lambda folder: spec(f"file://{folder}/hub/{PREFIX}/x.gguf"),
        lambda _: spec("gguf/not_fetched"),
    ],
    ids=["pinned", "in place", "not here"],
)
def test_there_is_nothing_to_compare_with(tmp_path: Path, change: Callable[[Path], object]) -> None:
    hub = tmp_path / "hub"
    put(hub, f"{PREFIX}/x.gguf", b"weights")
    cache = opened(tmp_path, DirectoryStore(hub))
    cache.fetch(spec())
    put(hub, f"{PREFIX}/x.gguf", b"other weights")

    assert cache.newer_push(change(tmp_path)) is None  # type: ignore[arg-type]
    assert cache.newer_push(spec()) is not None
