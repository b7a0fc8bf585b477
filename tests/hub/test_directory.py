"""A hub in a folder, with the links of a Hugging Face cache."""

import hashlib
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import Damaged, Transient
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.objects import HubObject
from reconciler.hub.rate_limit import RateLimit
from tests.cache.conftest import small_disk
from tests.hub.reading import read_all

__all__ = ["small_disk"]

MIB = 1 << 20
BIG = os.urandom(9 * MIB + 5)


def put(hub: Path, key: str, content: bytes) -> Path:
    path = hub / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def paths(store: DirectoryStore, prefix: str) -> list[str]:
    return [item.path for item in store.objects(prefix)]


def test_lists_files_with_size_and_mtime(tmp_path: Path) -> None:
    path = put(tmp_path, "gguf/a_x/sub/x.gguf", b"weights")
    put(tmp_path, "gguf/a_xy/y.gguf", b"other")

    (stored,) = DirectoryStore(tmp_path).objects("gguf/a_x")

    assert (stored.path, stored.key) == ("sub/x.gguf", "gguf/a_x/sub/x.gguf")
    assert stored.version == f"7-{path.stat().st_mtime_ns}"
    assert stored.md5 is None


def test_an_unknown_prefix_is_empty_and_a_missing_hub_is_transient(tmp_path: Path) -> None:
    assert DirectoryStore(tmp_path).objects("gguf/none_x") == ()
    with pytest.raises(Transient, match="is it mounted"):
        DirectoryStore(tmp_path / "gone").objects("gguf/none_x")


def test_lists_prefixes(tmp_path: Path) -> None:
    for key in ("gguf/a_x/x.gguf", "huggingface/b_y@v1/config.json", ".trash/c_z/x", "gguf/file"):
        put(tmp_path, key, b"1")

    assert DirectoryStore(tmp_path).prefixes() == ("gguf/a_x", "huggingface/b_y@v1")


def test_follows_the_links_of_a_hugging_face_cache(tmp_path: Path) -> None:
    put(tmp_path, "huggingface/a_x/blobs/abc", b"weights")
    snapshot = tmp_path / "huggingface/a_x/snapshots/r1"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    store = DirectoryStore(tmp_path)

    stored = {item.path: item for item in store.objects("huggingface/a_x")}

    assert sorted(stored) == ["blobs/abc", "snapshots/r1/model.safetensors"]
    assert read_all(store, stored["snapshots/r1/model.safetensors"]) == b"weights"


@pytest.mark.parametrize("target", ["/etc/hostname", "../../../secret", "/etc"])
def test_a_link_out_of_the_hub_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_text("secret")
    put(tmp_path / "hub", "gguf/a_x/x.gguf", b"1")
    (tmp_path / "hub/gguf/a_x/y.gguf").symlink_to(target)

    with pytest.raises(Transient, match=r"cannot use gguf/a_x/y.gguf .* leads out of the hub"):
        DirectoryStore(tmp_path / "hub").objects("gguf/a_x")


def test_a_link_that_is_swapped_after_the_listing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    path = put(tmp_path / "hub", "gguf/a_x/x.gguf", b"public")
    store = DirectoryStore(tmp_path / "hub")
    (stored,) = store.objects("gguf/a_x")
    path.unlink()
    path.symlink_to(tmp_path / "secret")

    with pytest.raises(Transient, match="leads out of the hub"):
        read_all(store, stored)


def test_a_loop_of_folders_ends(tmp_path: Path) -> None:
    put(tmp_path, "gguf/a_x/x.gguf", b"1")
    (tmp_path / "gguf/a_x/again").symlink_to(".")

    assert paths(DirectoryStore(tmp_path), "gguf/a_x") == ["x.gguf"]


def test_a_dangling_link_is_named(tmp_path: Path) -> None:
    put(tmp_path, "gguf/a_x/x.gguf", b"1")
    (tmp_path / "gguf/a_x/y.gguf").symlink_to("nowhere")

    with pytest.raises(Transient, match="nowhere is missing or a dangling link"):
        DirectoryStore(tmp_path).objects("gguf/a_x")


def test_copies_a_file_and_tells_how_far_it_is(tmp_path: Path) -> None:
    put(tmp_path, "gguf/a_x/x.gguf", BIG)
    store = DirectoryStore(tmp_path)
    (stored,) = store.objects("gguf/a_x")
    told: list[int] = []

    assert read_all(store, stored, on_bytes=told.append) == BIG
    assert told[-1] == len(BIG)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_copies_between_file_systems(tmp_path: Path) -> None:
    hub = Path("/dev/shm") / f"xgen-hub-{os.getpid()}"
    try:
        put(hub, "gguf/a_x/x.gguf", BIG)
        store = DirectoryStore(hub)
        (stored,) = store.objects("gguf/a_x")
        assert read_all(store, stored) == BIG
    finally:
        shutil.rmtree(hub)


def test_a_file_that_is_rewritten_during_the_copy_is_noticed(tmp_path: Path) -> None:
    path = put(tmp_path, "gguf/a_x/x.gguf", BIG)
    store = DirectoryStore(tmp_path)
    (stored,) = store.objects("gguf/a_x")

    def rewrite(_done: int) -> None:
        path.write_bytes(BIG[::-1])
        os.utime(path, ns=(1, 1))

    with pytest.raises(Transient, match="it changed while it was fetched"):
        read_all(store, stored, on_bytes=rewrite)


def test_a_file_that_shrank_is_noticed(tmp_path: Path) -> None:
    path = put(tmp_path, "gguf/a_x/x.gguf", BIG)
    store = DirectoryStore(tmp_path)
    (stored,) = store.objects("gguf/a_x")
    os.truncate(path, 100)

    with pytest.raises(Transient, match="it changed while it was fetched"):
        read_all(store, stored)


def test_a_file_that_is_gone_is_transient(tmp_path: Path) -> None:
    path = put(tmp_path, "gguf/a_x/x.gguf", BIG)
    store = DirectoryStore(tmp_path)
    (stored,) = store.objects("gguf/a_x")
    path.unlink()

    with pytest.raises(Transient, match=r"cannot fetch gguf/a_x/x\.gguf"):
        read_all(store, stored)


def test_a_cancelled_copy_stops(tmp_path: Path) -> None:
    put(tmp_path, "gguf/a_x/x.gguf", BIG)
    store = DirectoryStore(tmp_path)
    (stored,) = store.objects("gguf/a_x")
    told: list[int] = []

    with pytest.raises(Transient, match="no longer wanted"):
        read_all(store, stored, on_bytes=told.append, cancelled=lambda: len(told) == 1)

    assert 0 < told[-1] < len(BIG)


class KilledTry:
    """The journal of a copy that was killed after one part; `left`: what it wrote of that."""

    def __init__(self, fd: int, left: bytes) -> None:
        os.pwrite(fd, left, 0)
        self.said: list[int | str] = []

    def begin(self, part_bytes: int) -> tuple[int, frozenset[int]]:
        assert part_bytes == 8 * MIB
        return part_bytes, frozenset() if "forget" in self.said else frozenset({0})

    def finished(self, index: int) -> None:
        self.said.append(index)

    def forget(self) -> None:
        self.said.append("forget")


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_a_copy_goes_on_where_a_killed_one_was(tmp_path: Path) -> None:
    """Between file systems, where no blocks can be shared. With a digest, what was left counts
    only if it is right; that it is not copied again shows in what is wrong without one."""
    hub = Path("/dev/shm") / f"xgen-hub-{os.getpid()}"
    wrong = bytes(8 * MIB)
    try:
        put(hub, "gguf/a_x/x.gguf", BIG)
        store = DirectoryStore(hub)
        (stored,) = store.objects("gguf/a_x")
        sure = replace(stored, sha256=hashlib.sha256(BIG).hexdigest())

        assert resumed(store, sure, left=BIG[: 8 * MIB]) == (BIG, [], 8 * MIB)
        assert resumed(store, stored, left=wrong) == (wrong + BIG[8 * MIB :], [], 8 * MIB)
        assert resumed(store, sure, left=wrong) == (BIG, ["forget", 0], 0)
    finally:
        shutil.rmtree(hub)


def resumed(
    store: DirectoryStore, stored: HubObject, *, left: bytes
) -> tuple[bytes, list[int | str], int]:
    """The file, what its journal was told, and after how many bytes the copy began at last."""
    told: list[int] = []
    with tempfile.TemporaryFile() as file:
        journal = KilledTry(file.fileno(), left)
        store.read(
            stored,
            file.fileno(),
            on_bytes=told.append,
            cancelled=lambda: False,
            journal=journal,
        )
        begin = 0 if min(told) < 8 * MIB else 8 * MIB
        return os.pread(file.fileno(), len(BIG) + 1, 0), journal.said, begin


def test_a_copy_is_compared_with_its_sha256(tmp_path: Path) -> None:
    put(tmp_path, "gguf/a_x/x.gguf", BIG)
    store = DirectoryStore(tmp_path)
    (stored,) = store.objects("gguf/a_x")
    right = replace(stored, sha256=hashlib.sha256(BIG).hexdigest())
    told: list[int] = []

    assert read_all(store, right) == BIG
    with pytest.raises(Damaged, match="does not match its sha256, after 3 fetches; push it again"):
        read_all(store, replace(stored, sha256="0" * 64), on_bytes=told.append)

    assert told.count(len(BIG)) == 3


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_a_copy_heeds_the_rate_of_the_node(tmp_path: Path) -> None:
    """kserve#6137 (scenario 33). Between file systems, where no blocks can be shared."""
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    hub = Path("/dev/shm") / f"xgen-hub-{os.getpid()}"
    try:
        put(hub, "gguf/a_x/x.gguf", BIG)
        rate = RateLimit(1 << 20, clock=lambda: now[0], sleep=sleep)
        store = DirectoryStore(hub, rate=rate)
        (stored,) = store.objects("gguf/a_x")
        assert read_all(store, stored) == BIG
    finally:
        shutil.rmtree(hub)

    assert 4 < sum(slept) < 10


def test_a_full_disk_says_how_to_make_room(small_disk: Path) -> None:
    with pytest.raises(Transient, match="No space left on device; make room there, `hub gc` frees"):
        DirectoryWriter(small_disk).save("gguf/org_model", "x.gguf", bytes(6 << 20))
    assert not any(path.is_file() for path in small_disk.rglob("*"))
