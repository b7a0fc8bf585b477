"""Prefixes with a catalog, pushed and pulled: a hub in a folder, and a real S3 server."""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reconciler.cache.store import Store, StoredObject
from reconciler.errors import Damaged, Transient
from reconciler.hub.catalog import CATALOG, Catalog
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.push import push
from tests.cache.caches import listed, opened
from tests.cache.specs import CountingStore, put, spec
from tests.hub.test_push import Silent, folder_of, order

PREFIX = "gguf/org_name"


def pushed(hub: Path, files: dict[str, bytes], *, source: Path, again: bool = False) -> Catalog:
    """Push these files to the prefix. `source`: a new folder for them, deleted by nobody.

    `again`: also what is there, as `hub push --again`.
    """
    folder = folder_of(source.parent, files, source.name)
    return push(DirectoryWriter(hub), order(folder, PREFIX, again=again), Silent()).catalog


def test_a_pushed_model_is_pulled_and_its_digest_is_the_catalogs(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    catalog = pushed(folder, {"x.gguf": b"weights"}, source=tmp_path / "v1")

    files = opened(tmp_path, store).fetch(spec())

    assert Path(files.path).read_bytes() == b"weights"
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert files.digest == hashlib.sha256(f"x.gguf\x007\0{sha256}\n".encode()).hexdigest()
    assert (files.digest, files.revision, files.verified) == (catalog.digest, catalog.digest, True)


def test_the_digest_of_a_model_is_over_its_own_files(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    cache = opened(tmp_path, store)
    first = pushed(folder, {"x.gguf": b"weights", "README.md": b"1"}, source=tmp_path / "v1")
    before = cache.fetch(spec(digest=first.digest))
    second = pushed(folder, {"x.gguf": b"weights", "README.md": b"2"}, source=tmp_path / "v2")

    after = cache.fetch(spec(digest=f"sha256:{second.digest}"))

    assert before.digest == after.digest == listed(cache, spec())
    assert (before.revision, after.revision) == (first.digest, second.digest)
    assert os.path.samefile(before.path, after.path)


def test_a_prefix_without_a_catalog_is_not_verified(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put(folder, f"{PREFIX}/x.gguf")

    files = opened(tmp_path, store).fetch(spec())

    assert (files.verified, files.former) == (False, None)
    assert files.revision == files.digest


def test_a_pinned_digest_can_be_pulled_after_two_more_pushes(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    contents = (b"first", b"second", b"third")
    digests = [
        pushed(folder, {"x.gguf": content}, source=tmp_path / content.decode()).digest
        for content in contents
    ]
    cache = opened(tmp_path, store)

    for content, digest in zip(contents, digests, strict=True):
        pinned = spec(digest=f"sha256:{digest.upper()}")
        assert cache.lookup(pinned) is None
        files = cache.fetch(pinned)
        assert Path(files.path).read_bytes() == content
        assert cache.lookup(pinned) == files
        assert files.revision == digest


def test_what_one_model_pins_moves_no_other_one(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    """R4: the others of its prefix keep the files that they run with."""
    folder, store = hub
    older = pushed(folder, {"x.gguf": b"older"}, source=tmp_path / "older").digest
    pushed(folder, {"x.gguf": b"newer"}, source=tmp_path / "newer")
    cache = opened(tmp_path, store)
    newer = cache.fetch(spec())

    pinned = cache.fetch(spec(digest=older))

    assert pinned != newer
    assert cache.lookup(spec()) == newer


def test_a_digest_that_the_hub_has_not_is_answered_with_those_that_it_has(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    digest = pushed(folder, {"x.gguf": b"weights"}, source=tmp_path / "v1").digest

    with pytest.raises(Transient, match=f"does not have it; it has {digest} \\(in force\\)$"):
        opened(tmp_path, store).fetch(spec(digest="0" * 64))


class Reading:
    """A store that does something once the first file of a model was read."""

    def __init__(self, store: Store, act: Callable[[], object]) -> None:
        self._store = store
        self._act: Callable[[], object] | None = act
        self.location, self.reads_at_once = store.location, 1

    def objects(self, prefix: str, digest: str | None = None) -> Sequence[StoredObject]:
        return self._store.objects(prefix, digest)

    def prefixes(self) -> Sequence[str]:
        return self._store.prefixes()

    def read(self, stored: StoredObject, fd: int, **callbacks: Any) -> None:
        self._store.read(stored, fd, **callbacks)
        act, self._act = self._act, None
        if act is not None:
            act()


def test_a_push_in_the_middle_of_a_pull_is_never_mixed_with_it(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    """triton#5711 (scenario 32): the files of one push."""
    folder, store = hub
    old = {"config.json": b"old {}", "model.safetensors": b"old weights"}
    new = {"config.json": b"new {}", "model.safetensors": b"new weights"}
    pushed(folder, old, source=tmp_path / "v1")
    cache = opened(tmp_path, Reading(store, lambda: pushed(folder, new, source=tmp_path / "v2")))

    files = cache.fetch(spec())

    assert {path: (Path(files.root) / path).read_bytes() for path in old} == old
    assert listed(cache, spec()) != files.digest
    assert cache.lookup(spec()) == files


def test_what_another_tool_overwrites_in_the_middle_of_a_pull_is_never_mixed_with_it(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    """huggingface_hub#1498 (scenario 29), without a catalog: an error, then the new files."""
    folder, store = hub
    old = {"config.json": b"old {}", "model.safetensors": b"old weights"}
    new = {"config.json": b"newer {}", "model.safetensors": b"newer weights"}

    def copy(files: dict[str, bytes]) -> None:
        for path, content in files.items():
            put(folder, f"{PREFIX}/{path}", content)

    copy(old)
    cache = opened(tmp_path, Reading(store, lambda: copy(new)))

    with pytest.raises(Transient, match="it changed while it was fetched"):
        cache.fetch(spec())
    assert cache.lookup(spec()) is None
    files = cache.fetch(spec())
    assert {path: (Path(files.root) / path).read_bytes() for path in new} == new


def test_a_file_that_another_tool_overwrites_is_damaged(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    """As large as before, so that only its content tells."""
    folder, store = hub
    pushed(folder, {"x.gguf": b"weights"}, source=tmp_path / "v1")
    (folder / PREFIX / "x.gguf").write_bytes(b"weightz")
    cache = opened(tmp_path, store)

    with pytest.raises(Damaged, match="does not match its sha256, after 3 fetches; push it"):
        cache.fetch(spec())

    assert cache.lookup(spec()) is None
    assert not list((tmp_path / "models/.rev").glob("*/*/*/x.gguf"))


def test_a_damaged_catalog_is_no_reason_to_take_the_plain_files(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    pushed(folder, {"x.gguf": b"weights"}, source=tmp_path / "v1")
    cached = opened(tmp_path, store).fetch(spec())
    catalog = folder / PREFIX / CATALOG
    catalog.write_bytes(catalog.read_bytes()[:100])

    with pytest.raises(Transient, match=r"cannot read catalog .* it is damaged"):
        opened(tmp_path / "other", store).fetch(spec())
    assert opened(tmp_path, store).fetch(spec()) == cached


def test_a_catalog_that_names_a_lost_object_is_an_error(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    pushed(folder, {"x.gguf": b"weights"}, source=tmp_path / "v1")
    (folder / PREFIX / "x.gguf").unlink()

    with pytest.raises(Transient, match=r"x\.gguf is missing, .*; push the model again"):
        opened(tmp_path, store).fetch(spec())


def test_a_first_push_that_has_not_ended_is_waited_for(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put(folder, f"{PREFIX}/x.gguf")
    announced = put(folder, f"{PREFIX}/.xgen/pushes/{'0' * 64}", b"")
    cache = opened(tmp_path, store)

    with pytest.raises(Transient, match="its first push has not ended; push the model"):
        cache.fetch(spec())
    announced.unlink()
    assert cache.fetch(spec()).size_bytes == 7


def test_the_same_content_at_another_place_of_the_hub_is_fetched_from_there(
    tmp_path: Path,
) -> None:
    """Only in part here when the hub was moved: its versions are others, the digest is not."""
    hub = tmp_path / "hub"
    hub.mkdir()
    files = {"config.json": b"{}", "model.safetensors": b"weights"}
    first = pushed(hub, files, source=tmp_path / "v1")
    cached = opened(tmp_path, DirectoryStore(hub)).fetch(spec())
    (Path(cached.root) / "config.json").unlink()
    other = tmp_path / "other"
    other.mkdir()
    assert pushed(other, files, source=tmp_path / "again").digest == first.digest
    for path in (other / PREFIX).rglob("*.json"):
        os.utime(path, ns=(1, 1))
    store = CountingStore(other)

    assert opened(tmp_path, store).fetch(spec()) == cached
    assert [key for key in store.read_keys if ".xgen" not in key] == [f"{PREFIX}/config.json"]


def test_revisions_share_what_has_the_same_content_in_another_hub(tmp_path: Path) -> None:
    hub, other = tmp_path / "hub", tmp_path / "other"
    hub.mkdir()
    other.mkdir()
    files = {"config.json": b"{}", "model.safetensors": b"weights"}
    pushed(hub, files, source=tmp_path / "v1")
    old = opened(tmp_path, DirectoryStore(hub)).fetch(spec())
    newest = pushed(other, {**files, "config.json": b"[]"}, source=tmp_path / "v2")
    for path in (other / PREFIX).rglob("*.safetensors"):
        os.utime(path, ns=(1, 1))
    newer = opened(tmp_path, DirectoryStore(other)).fetch(spec(digest=newest.digest))

    weights = [Path(files.root) / "model.safetensors" for files in (old, newer)]
    assert weights[0].stat().st_ino == weights[1].stat().st_ino
    assert old.digest != newer.digest


def test_a_record_of_the_release_before_is_read(tmp_path: Path) -> None:
    put(tmp_path / "hub", f"{PREFIX}/x.gguf")
    files = opened(tmp_path, DirectoryStore(tmp_path / "hub")).fetch(spec())
    (path,) = (tmp_path / "models/.rev/gguf/org_name").glob("*.json")
    record = json.loads(path.read_bytes())
    del record["former"]
    path.write_text(json.dumps(record))

    assert opened(tmp_path, None).lookup(spec()) == files


def test_two_nodes_on_one_folder_pull_two_pushes_at_once(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    digests = [
        pushed(hub, {"x.gguf": os.urandom(1 << 20)}, source=tmp_path / f"v{n}").digest
        for n in range(2)
    ]
    found = {}

    def fetch(digest: str) -> None:
        found[digest] = opened(tmp_path, DirectoryStore(hub)).fetch(spec(digest=digest))

    threads = [threading.Thread(target=fetch, args=(digest,)) for digest in digests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {digest: files.revision for digest, files in found.items()} == dict(
        zip(digests, digests, strict=True)
    )
