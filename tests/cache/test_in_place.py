"""`file://` sources, and the folders of an older installation."""

import os
import subprocess
from pathlib import Path

import pytest

from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Rejected, XgenError
from reconciler.hub.directory import DirectoryStore
from reconciler.plan.desired import Format
from tests.cache.specs import CountingStore, put, spec


def opened(tmp_path: Path, store: DirectoryStore | None = None, *roots: Path) -> ModelCache:
    cache = ModelCache(tmp_path / "models", store, allowed_file_roots=roots or None)
    cache.open()
    return cache


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_uses_a_file_where_it_is(tmp_path: Path) -> None:
    path = put(tmp_path, "disk/x.gguf")
    put(tmp_path, "disk/y.gguf")
    wanted = spec(f"file://{path}")
    cache = opened(tmp_path)

    files = cache.fetch(wanted)

    assert (files.path, files.root, files.size_bytes) == (str(path), str(path.parent), 7)
    assert cache.lookup(wanted) == files
    assert tree(tmp_path / "models").keys() == {".partial/.lock"}


def test_uses_shards_beside_the_named_one(tmp_path: Path) -> None:
    for number in (1, 2):
        put(tmp_path, f"disk/x-{number:05}-of-00002.gguf")

    files = opened(tmp_path).fetch(spec(f"file://{tmp_path}/disk/x-00002-of-00002.gguf"))

    assert files.path == str(tmp_path / "disk/x-00001-of-00002.gguf")
    assert files.size_bytes == 14


def test_uses_a_folder_where_it_is(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        put(tmp_path, f"my models/{name}")

    files = opened(tmp_path).fetch(spec(f"file://{tmp_path}/my%20models"))

    assert (files.format, files.path) == (Format.SAFETENSORS, str(tmp_path / "my models"))


def test_uses_a_hugging_face_cache_where_it_is(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    put(repository, "blobs/abc")
    put(repository, "refs/main", b"r2")
    for revision in ("r1", "r2"):
        (repository / "snapshots" / revision).mkdir(parents=True)
        (repository / "snapshots" / revision / "m.gguf").symlink_to("../../blobs/abc")

    files = opened(tmp_path).fetch(spec(f"file://{repository}"))

    assert files.path == str(repository / "snapshots/r2/m.gguf")


def test_the_digest_changes_with_the_file(tmp_path: Path) -> None:
    path = put(tmp_path, "disk/x.gguf")
    wanted = spec(f"file://{path}")
    cache = opened(tmp_path)
    before = cache.fetch(wanted)
    os.utime(path, ns=(1, 1))

    after = cache.lookup(wanted)

    assert after is not None
    assert after.digest != before.digest


@pytest.mark.parametrize("missing", ["disk/none.gguf", "none/x.gguf", "none"])
def test_a_missing_path_is_refused_by_name_until_it_is_there(tmp_path: Path, missing: str) -> None:
    (tmp_path / "disk").mkdir()
    cache = opened(tmp_path)
    wanted = spec(f"file://{tmp_path}/{missing}")

    with pytest.raises(Rejected, match=f"{missing}: no such file or directory"):
        cache.fetch(wanted)

    assert cache.lookup(wanted) is None
    put(tmp_path, f"{missing}/x.gguf" if missing == "none" else missing)
    assert cache.lookup(wanted) is not None


def test_only_allowed_folders_are_used(tmp_path: Path) -> None:
    put(tmp_path, "allowed/x.gguf")
    put(tmp_path, "allowed-too/y.gguf")
    put(tmp_path, "secret/z.gguf")
    (tmp_path / "allowed/linked.gguf").symlink_to(tmp_path / "secret/z.gguf")
    cache = opened(tmp_path, None, tmp_path / "allowed")

    assert cache.lookup(spec(f"file://{tmp_path}/allowed/x.gguf")) is not None
    for path in ("secret/z.gguf", "allowed/../secret/z.gguf", "allowed/linked.gguf"):
        with pytest.raises(Rejected, match="outside the folders that this node allows"):
            cache.fetch(spec(f"file://{tmp_path}/{path}"))
    assert cache.lookup(spec(f"file://{tmp_path}/allowed-too/y.gguf")) is None


def test_a_node_that_allows_no_folder_uses_none(tmp_path: Path) -> None:
    path = put(tmp_path, "disk/x.gguf")
    cache = ModelCache(tmp_path / "models", None, allowed_file_roots=())
    cache.open()

    with pytest.raises(Rejected, match=r"; it allows none; .* --allow-file-root DIR"):
        cache.fetch(spec(f"file://{path}"))


def test_a_digest_cannot_be_pinned_in_place(tmp_path: Path) -> None:
    path = put(tmp_path, "disk/x.gguf")

    with pytest.raises(Rejected, match="cannot pin"):
        opened(tmp_path).fetch(spec(f"file://{path}", digest="0" * 64))


def test_an_older_folder_is_taken_in_and_only_what_differs_is_fetched(tmp_path: Path) -> None:
    for name in (
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ):
        put(tmp_path / "hub", f"huggingface/org_name/{name}", name.encode())
        put(tmp_path / "models", f"huggingface/org_name/{name}", name.encode())
    old = tmp_path / "models/huggingface/org_name"
    put(old, "config.json", b"of another size")
    put(old, "model.safetensors", b"a stale one, which an engine would load")
    inode = (old / "model-00001-of-00002.safetensors").stat().st_ino
    store = CountingStore(tmp_path / "hub")
    cache = opened(tmp_path, store)
    wanted = spec("huggingface/org_name")
    assert cache.lookup(wanted) is None

    files = cache.fetch(wanted)

    assert store.read_keys == ["huggingface/org_name/config.json"]
    assert tree(Path(files.path)) == {
        name: name.encode()
        for name in (
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        )
    }
    assert (Path(files.path) / "model-00001-of-00002.safetensors").stat().st_ino == inode
    assert old.is_symlink()
    assert old.resolve() == Path(files.path)
    assert tree(Path(f"{files.path}.kept")) == {
        "config.json": b"of another size",
        "model.safetensors": b"a stale one, which an engine would load",
    }


def test_links_in_an_older_folder_lead_nowhere_else_afterwards(tmp_path: Path) -> None:
    """Not even for a write: a linked folder is no place to put a file from the hub."""
    outside = tmp_path / "outside"
    put(outside, "config.json", b"mine, not yours")
    for key in ("1_Pooling/config.json", "model.safetensors", "blobbed.json"):
        put(tmp_path / "hub", f"huggingface/org_name/{key}", b"from the hub 12")
    old = tmp_path / "models/huggingface/org_name"
    put(old, "model.safetensors", b"from the hub 12")
    put(old, "blobs/abc", b"from the hub 12")
    (old / "blobbed.json").symlink_to("blobs/abc")
    (old / "1_Pooling").symlink_to(outside)

    files = opened(tmp_path, CountingStore(tmp_path / "hub")).fetch(spec("huggingface/org_name"))

    assert (outside / "config.json").read_bytes() == b"mine, not yours"
    pooling = Path(files.path) / "1_Pooling"
    assert not pooling.is_symlink()
    assert (pooling / "config.json").read_bytes() == b"from the hub 12"
    assert (Path(files.path) / "blobbed.json").is_symlink()


@pytest.mark.parametrize("hub", ["away", "without the prefix", "none"])
def test_an_older_folder_is_used_as_it_is_while_no_hub_knows_it(tmp_path: Path, hub: str) -> None:
    if hub == "without the prefix":
        put(tmp_path / "hub", "gguf/other_name/x.gguf")
    store = None if hub == "none" else DirectoryStore(tmp_path / "hub")
    old = put(tmp_path / "models", "gguf/org_name/x.gguf", b"old").parent
    cache = opened(tmp_path, store)

    files = cache.fetch(spec())

    assert files.path == str(old / "x.gguf")
    assert cache.lookup(spec()) == cache.fetch(spec()) == files
    assert not old.is_symlink()
    assert tree(old) == {"x.gguf": b"old"}


def test_an_older_folder_is_taken_in_once_the_hub_is_back(tmp_path: Path) -> None:
    old = put(tmp_path / "models", "gguf/org_name/x.gguf").parent
    opened(tmp_path, DirectoryStore(tmp_path / "hub")).fetch(spec())
    put(tmp_path / "hub", "gguf/org_name/x.gguf")

    files = opened(tmp_path, DirectoryStore(tmp_path / "hub")).fetch(spec())

    assert ".rev" in Path(files.path).parts
    assert old.is_symlink()


def test_a_link_to_another_disk_is_used_as_it_is(tmp_path: Path) -> None:
    nas = put(tmp_path, "nas/name/x.gguf").parent
    (tmp_path / "models/gguf").mkdir(parents=True)
    (tmp_path / "models/gguf/org_name").symlink_to(nas)
    put(tmp_path / "hub", "gguf/org_name/x.gguf", b"other")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))

    files = cache.fetch(spec())

    assert files.path == str(nas / "x.gguf")
    assert os.readlink(tmp_path / "models/gguf/org_name") == str(nas)


def test_a_folder_that_cannot_be_moved_is_used_as_it_is(tmp_path: Path) -> None:
    old = put(tmp_path / "models", "gguf/org_name/x.gguf").parent
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    mount = ["mount", "--bind", str(old), str(old)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        files = opened(tmp_path, DirectoryStore(tmp_path / "hub")).fetch(spec())
        assert files.path == str(old / "x.gguf")
    finally:
        subprocess.run(["umount", str(old)], check=True)


def test_a_read_only_models_folder_serves_what_it_holds(tmp_path: Path) -> None:
    """Models baked into an image, with a hub that has them too."""
    old = put(tmp_path / "models", "gguf/org_name/x.gguf").parent
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(tmp_path / "models/.rev")]
    (tmp_path / "models/.rev").mkdir()
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
        files = cache.fetch(spec())
        assert files.path == str(old / "x.gguf")
        assert cache.lookup(spec()) == files
    finally:
        subprocess.run(["umount", str(tmp_path / "models/.rev")], check=True)


def test_an_incomplete_older_folder_is_no_model(tmp_path: Path) -> None:
    put(tmp_path / "models", "gguf/org_name/x-00001-of-00002.gguf")
    cache = opened(tmp_path)

    assert cache.lookup(spec()) is None
    with pytest.raises(XgenError, match="no hub is set"):
        cache.fetch(spec())
