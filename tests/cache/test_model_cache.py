"""The cache on real folders, with a hub in a folder and on a real S3 server."""

import os
import shutil
import socket
import threading
from pathlib import Path

import pytest

from reconciler.cache.store import Store
from reconciler.errors import Rejected, Transient
from reconciler.hub.directory import DirectoryStore
from reconciler.plan.desired import Format
from tests.cache.caches import listed, opened, remains
from tests.cache.specs import CountingStore, put, spec
from tests.s3_server import S3Server, s3_store

BIG = os.urandom(2 * 1024 * 1024 + 3)


def test_fetches_a_model_into_its_revision_and_links_the_prefix(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    put(folder, "gguf/org_name/README.md")
    put(folder, "gguf/org_name_longer/y.gguf")
    cache = opened(tmp_path, store)
    told: list[tuple[int, int]] = []
    assert cache.lookup(spec()) is None

    files = cache.fetch(spec(), on_progress=lambda *now: told.append(now))

    revision = Path(files.root)
    assert revision.parent == tmp_path / "models/.rev/gguf/org_name"
    assert (tmp_path / "models/gguf/org_name").resolve() == revision
    assert (files.path, files.format) == (str(revision / "x.gguf"), Format.GGUF)
    assert Path(files.path).read_bytes() == BIG
    assert [path.name for path in revision.iterdir()] == ["x.gguf"]
    assert files.size_bytes == len(BIG)
    assert cache.lookup(spec()) == files
    assert told[0] == (0, len(BIG))
    assert told[-1] == (len(BIG), len(BIG))
    assert told == sorted(told)
    assert remains(tmp_path) == []


def test_a_folder_model_is_given_as_a_folder(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    folder, store = hub
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json", "pytorch_model.bin"):
        put(folder, f"huggingface/org_name@v1/{name}")
    put(folder, "huggingface/org_name@v1/added_tokens.json", b"")
    wanted = spec("huggingface/org_name@v1")
    cache = opened(tmp_path, store)

    files = cache.fetch(wanted)

    assert files.path == files.root
    assert sorted(
        str(path.relative_to(files.path)) for path in Path(files.path).rglob("*") if path.is_file()
    ) == ["1_Pooling/config.json", "added_tokens.json", "config.json", "model.safetensors"]


def test_the_revision_of_the_main_branch_is_taken(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    folder, store = hub
    put(folder, "huggingface/org_name/refs/main", b"r2\n")
    for revision in ("r1", "r2"):
        put(folder, f"huggingface/org_name/snapshots/{revision}/model.safetensors")
    wanted = spec("huggingface/org_name")

    files = opened(tmp_path, store).fetch(wanted)

    assert files.root.endswith("/snapshots/r2")
    assert opened(tmp_path, None).lookup(wanted) == files


def test_a_cached_model_needs_no_network(tmp_path: Path, server: S3Server, bucket: str) -> None:
    """gpustack#2519, #2566 (scenario 80): deployed offline, by another agent's run."""
    server.put(bucket, "gguf/org_name/x.gguf", b"weights")
    with s3_store(server.settings(bucket)) as store:
        files = opened(tmp_path, store).fetch(spec())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with s3_store(server.settings(bucket, endpoint=nobody)) as down:
        cache = opened(tmp_path, down)
        assert cache.lookup(spec()) == files
        assert cache.fetch(spec()) == files
        with pytest.raises(Transient, match="does not accept connections"):
            cache.fetch(spec("gguf/other_name"))


def test_two_threads_fetch_the_same_prefix_once(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf", BIG)
    store = CountingStore(tmp_path / "hub")
    cache = opened(tmp_path, store)
    together = threading.Barrier(4)
    results = []

    def fetch() -> None:
        together.wait()
        results.append(cache.fetch(spec()))

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert store.read_keys == ["gguf/org_name/x.gguf"]
    assert len(results) == 4
    assert len(set(results)) == 1


def test_a_lock_file_that_was_left_behind_blocks_nobody(tmp_path: Path) -> None:
    """gpustack#1621, #1882 (scenario 25)."""
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    put(tmp_path / "models", ".rev/gguf/org_name/.lock", b"pid 12345")

    assert opened(tmp_path, DirectoryStore(tmp_path / "hub")).fetch(spec()).size_bytes == 7


@pytest.mark.parametrize("damage", ["truncate", "delete"])
def test_a_published_file_that_is_damaged_counts_as_missing(tmp_path: Path, damage: str) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf", BIG)
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    files = cache.fetch(spec())
    path = Path(files.path)
    if damage == "truncate":
        os.truncate(path, 100)
    else:
        path.unlink()

    assert cache.lookup(spec()) is None
    assert cache.fetch(spec()) == files
    assert path.read_bytes() == BIG


def test_a_damaged_record_costs_a_fetch_not_a_wrong_answer(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    files = cache.fetch(spec())
    (record,) = (tmp_path / "models/.rev/gguf/org_name").glob("*.json")
    record.write_text(record.read_text().replace('"size_bytes": 7', '"size_bytes": 9'))

    assert cache.lookup(spec()) is None
    assert cache.fetch(spec()) == files


def test_a_newer_push_is_not_taken_up_by_itself(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", b"old")
    cache = opened(tmp_path, store)
    files = cache.fetch(spec())
    put(folder, "gguf/org_name/x.gguf", b"newer")

    assert cache.fetch(spec()) == cache.lookup(spec()) == files
    assert Path(files.path).read_bytes() == b"old"


def test_files_that_were_retired_are_fetched_anew(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", b"half")
    cache = opened(tmp_path, store)
    half = cache.fetch(spec())
    assert listed(cache, spec()) == half.digest
    put(folder, "gguf/org_name/x.gguf", b"half and half")

    newer = listed(cache, spec())
    assert newer != half.digest
    cache.retire(spec(), keep=newer)

    assert cache.lookup(spec()) is None
    whole = cache.fetch(spec())
    assert whole.digest == newer
    assert Path(whole.path).read_bytes() == b"half and half"
    assert opened(tmp_path, store).lookup(spec()) == whole


def test_the_retirement_of_one_file_leaves_the_others_of_the_prefix(tmp_path: Path) -> None:
    for name in ("q4.gguf", "q8.gguf"):
        put(tmp_path / "hub", f"gguf/org_name/{name}", name.encode())
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    other = cache.fetch(spec(file="q4.gguf"))
    cache.fetch(spec(file="q8.gguf"))
    put(tmp_path / "hub", "gguf/org_name/q8.gguf", b"pushed again")

    cache.retire(spec(file="q8.gguf"), keep=listed(cache, spec(file="q8.gguf")))

    assert cache.lookup(spec(file="q8.gguf")) is None
    assert cache.lookup(spec(file="q4.gguf")) == other


def test_what_a_digest_pins_is_never_retired(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf", b"first")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    first = cache.fetch(spec())
    pinned = spec(digest=Path(first.root).name)
    put(tmp_path / "hub", "gguf/org_name/x.gguf", b"second")

    cache.retire(spec(), keep=listed(cache, spec()))

    assert cache.lookup(spec()) is None
    assert cache.lookup(pinned) == first


def test_what_the_hub_holds_again_is_no_longer_retired(tmp_path: Path) -> None:
    path = put(tmp_path / "hub", "gguf/org_name/x.gguf", b"first")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    first = cache.fetch(spec())
    first_stat = path.stat()
    put(tmp_path / "hub", "gguf/org_name/x.gguf", b"second")
    cache.retire(spec(), keep=listed(cache, spec()))
    put(tmp_path / "hub", "gguf/org_name/x.gguf", b"first")
    os.utime(path, ns=(first_stat.st_atime_ns, first_stat.st_mtime_ns))

    assert cache.fetch(spec()) == first == cache.lookup(spec())


def test_there_is_nothing_to_compare_a_pinned_or_local_model_with(tmp_path: Path) -> None:
    path = put(tmp_path / "hub", "gguf/org_name/x.gguf")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))

    assert cache.listed_digest(spec(digest="0" * 64)) is None
    assert cache.listed_digest(spec(f"file://{path}")) is None
    assert opened(tmp_path, None).listed_digest(spec()) is None


def test_a_second_quantisation_leaves_the_first_as_it_is(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    """Both before and after a newer push to the prefix."""
    folder, store = hub
    for name in ("q4.gguf", "q6.gguf", "q8.gguf"):
        put(folder, f"gguf/org_name/{name}", name.encode())
    cache = opened(tmp_path, store)
    first = cache.fetch(spec(file="q4.gguf"))
    second = cache.fetch(spec("gguf/org_name/q6.gguf"))
    put(folder, "gguf/org_name/q4.gguf", b"pushed again")

    third = cache.fetch(spec(file="q8.gguf"))

    assert first.root == second.root != third.root
    assert cache.lookup(spec(file="q4.gguf")) == first
    assert cache.lookup(spec(file="q6.gguf")) == second
    assert (tmp_path / "models/gguf/org_name").resolve() == Path(third.root)


def test_revisions_share_the_files_that_did_not_change(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "chat_template.jinja"):
        put(tmp_path / "hub", f"huggingface/org_name/{name}", BIG)
    store = CountingStore(tmp_path / "hub")
    cache = opened(tmp_path, store)
    old = cache.fetch(spec("huggingface/org_name"))
    put(tmp_path / "hub", "huggingface/org_name/chat_template.jinja", b"new")
    store.read_keys.clear()
    (Path(old.root) / "config.json").unlink()
    told: list[tuple[int, int]] = []

    cache.refresh(spec("huggingface/org_name"), on_progress=lambda *now: told.append(now))

    new = cache.lookup(spec("huggingface/org_name"))
    assert new is not None
    assert sorted(store.read_keys) == [
        "huggingface/org_name/chat_template.jinja",
        "huggingface/org_name/config.json",
    ]
    weights = [Path(files.root) / "model.safetensors" for files in (old, new)]
    assert weights[0].stat().st_ino == weights[1].stat().st_ino
    assert old.digest != new.digest
    # What is shared was here before: it must not pass as speed.
    assert told[0] == (len(BIG), 2 * len(BIG) + 3)
    assert told[-1] == (told[0][1], told[0][1])


def test_the_digest_is_that_of_the_models_own_files(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/q4.gguf")
    put(tmp_path / "hub", "gguf/org_name/README.md", b"one")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    before = cache.fetch(spec())
    put(tmp_path / "hub", "gguf/org_name/README.md", b"another")
    shutil.rmtree(before.root)

    cache.refresh(spec())

    after = cache.lookup(spec())
    assert after is not None
    assert before.root != after.root
    assert before.digest == after.digest


def test_a_pinned_digest_must_be_what_the_hub_holds(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    folder_digest = Path(cache.fetch(spec()).root).name

    assert cache.lookup(spec(digest=f"sha256:{folder_digest}")) is not None
    assert cache.lookup(spec(digest="0" * 64)) is None
    with pytest.raises(Transient, match=f"pins 0{{64}}, the hub holds {folder_digest}"):
        cache.fetch(spec(digest="0" * 64))


def test_an_unknown_prefix_is_answered_with_the_nearest(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put(folder, "gguf/foo_baz/x.gguf")
    put(folder, "huggingface/unlike_this/x.safetensors")

    with pytest.raises(Transient, match=r"the hub has none; nearest: gguf/foo_baz$"):
        opened(tmp_path, store).fetch(spec("gguf/foo_bar"))


def test_a_folder_without_a_file_is_not_its_own_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "hub/gguf/o_emptydir").mkdir(parents=True)
    put(tmp_path / "hub", "gguf/o_emptydir2/.git/config")

    with pytest.raises(
        Transient, match="in the hub it is a folder without a file, or its first push"
    ):
        opened(tmp_path, DirectoryStore(tmp_path / "hub")).fetch(spec("gguf/o_emptydir"))


def test_folders_that_somebody_deleted_are_made_again(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    cache.fetch(spec())
    shutil.rmtree(tmp_path / "models")

    assert cache.lookup(spec()) is None
    assert cache.fetch(spec()).size_bytes == 7
    assert cache.lookup(spec()) is not None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    shutil.rmtree(tmp_path / "models")
    (tmp_path / "models").touch()

    with pytest.raises(Transient, match=f"cannot fetch gguf/org_name into {tmp_path}/models: "):
        cache.fetch(spec())


def test_without_a_hub_only_what_is_here_can_be_used(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="no hub is set"):
        opened(tmp_path, None).fetch(spec())
