"""Fetches that are cut, cancelled, or run out of room, on a directory and a real S3 server."""

import contextlib
import json
import os
import threading
from pathlib import Path

import pytest

from reconciler.cache.journal import this_boot
from reconciler.cache.store import Store
from reconciler.errors import Transient, XgenError
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.rate_limit import RateLimit
from tests.cache.caches import opened, remains
from tests.cache.specs import CountingStore, put, spec
from tests.s3_server import S3Server, s3_store
from tests.tcp_relay import relay_to

BIG = os.urandom(2 * 1024 * 1024 + 3)


def test_goes_on_after_the_last_finished_part(
    tmp_path: Path, server: S3Server, bucket: str
) -> None:
    """gpustack#2582, #3853 (scenarios 26, 28): a cut must not throw away what is there."""
    content = os.urandom(1_000_003) * 48
    server.put(bucket, "gguf/org_name/x.gguf", content)
    told: list[int] = []

    def cut(_done: int, _total: int) -> None:
        if any(
            finished_parts(path) > 0 for path in (tmp_path / "models/.partial").glob("*.journal")
        ):
            relay.cut_after = 0

    with (
        relay_to(server.port) as relay,
        s3_store(server.settings(bucket, endpoint=relay.endpoint), RateLimit(30e6)) as store,
    ):
        cache = opened(tmp_path, store)
        with pytest.raises(Transient, match=r"cannot fetch gguf/org_name/x\.gguf"):
            cache.fetch(spec(), on_progress=cut)
        assert cache.lookup(spec()) is None
        relay.cut_after = None
        files = cache.fetch(spec(), on_progress=lambda done, _total: told.append(done))

    assert told[0] >= len(content) % (8 << 20)  # the smallest part, the last one, may be the first
    assert told == sorted(told)
    assert told[-1] == files.size_bytes == len(content)
    assert Path(files.path).read_bytes() == content
    assert remains(tmp_path) == []


def finished_parts(journal: Path) -> int:
    return sum(line.isdigit() for line in journal.read_bytes().splitlines())


def test_an_object_that_changes_in_mid_download_is_never_published(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    # More than the sockets hold: else all of the old object may be on its way already.
    path = put(folder, "gguf/org_name/x.gguf", BIG * 16)
    cache = opened(tmp_path, store)

    def push(done: int, _total: int) -> None:
        if done and path.stat().st_size == len(BIG) * 16:
            put(folder, "gguf/org_name/x.gguf", BIG * 3)

    with pytest.raises(XgenError):
        cache.fetch(spec(), on_progress=push)

    assert cache.lookup(spec()) is None
    assert Path(cache.fetch(spec()).path).read_bytes() == BIG * 3


def test_a_cancelled_fetch_stops_and_leaves_nothing_useless(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", BIG * 8)
    cache = opened(tmp_path, store)
    told: list[int] = []

    with pytest.raises(Transient, match="no longer wanted"):
        cache.fetch(
            spec(),
            on_progress=lambda done, _total: told.append(done),
            cancelled=lambda: len(told) > 1,
        )

    assert cache.lookup(spec()) is None
    assert len(remains(tmp_path)) in (0, 2)  # nothing, or finished parts and their journal
    cache.fetch(spec())
    assert remains(tmp_path) == []


def test_a_fetch_that_waits_for_another_can_be_cancelled(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf", BIG)
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    downloading = threading.Event()
    go_on = threading.Event()

    def wait(_done: int, _total: int) -> None:
        downloading.set()
        go_on.wait()

    first = threading.Thread(target=lambda: cache.fetch(spec(), on_progress=wait))
    first.start()
    try:
        downloading.wait()
        with pytest.raises(Transient, match="cannot wait for another fetch"):
            cache.fetch(spec(), cancelled=lambda: True)
    finally:
        go_on.set()
        first.join()


def test_only_the_partials_of_the_dead_are_removed(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf", BIG)
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    dead = put(tmp_path / "models", ".partial/of-a-dead-process")
    live: list[list[str]] = []

    def open_again(done: int, _total: int) -> None:
        if done and not live:
            opened(tmp_path, None)
            live.append(remains(tmp_path))

    cache.fetch(spec(), on_progress=open_again)

    assert not dead.exists()
    assert len(live[0]) == 1


def test_too_little_room_is_said_with_numbers_before_the_download(tmp_path: Path) -> None:
    path = put(tmp_path / "hub", "gguf/org_name/x.gguf")
    os.truncate(path, 8 << 40)  # a hole: nothing is written
    store = CountingStore(tmp_path / "hub")

    with pytest.raises(Transient, match=r"8\.0 TiB are needed and .* are free in"):
        opened(tmp_path, store).fetch(spec())

    assert store.read_keys == []


def test_a_disk_that_fills_up_in_mid_download_is_transient(
    tmp_path: Path, small_disk: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    cache = opened(tmp_path, store)

    def fill_up(_done: int, _total: int) -> None:
        with contextlib.suppress(OSError):  # the disk is full: as it should be
            (small_disk / "somebody-else").write_bytes(bytes(4 << 20))

    with pytest.raises(Transient, match=r"2\.0 MiB are needed and .* are free in"):
        cache.fetch(spec(), on_progress=fill_up)

    assert remains(tmp_path) == []
    (small_disk / "somebody-else").unlink()
    assert cache.fetch(spec()).size_bytes == len(BIG)


def test_what_another_fetch_left_gives_way_to_what_is_wanted(
    tmp_path: Path, small_disk: Path, hub: tuple[Path, Store]
) -> None:
    """It could be gone on with, but nobody asks for it."""
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    cache = opened(tmp_path, store)
    header = {"journal": 2, "key": "gguf/other/x.gguf", "version": "1", "size": 3 << 20, "part": 9}
    header["boot"] = this_boot()
    put(small_disk, f".partial/{'0' * 32}.journal", json.dumps(header).encode() + b"\n")
    left = put(small_disk, f".partial/{'0' * 32}", bytes(3 << 20))
    opened(tmp_path, store)
    assert left.exists()

    assert cache.fetch(spec()).size_bytes == len(BIG)

    assert remains(tmp_path) == []


def test_unsafe_names_never_reach_the_disk(tmp_path: Path, server: S3Server, bucket: str) -> None:
    server.put(bucket, "huggingface/org_name/model.safetensors", b"1")
    server.put(bucket, "huggingface/org_name/a\\..\\..\\b.json", b"1")

    with (
        s3_store(server.settings(bucket)) as store,
        pytest.raises(Transient, match="it holds a backslash"),
    ):
        opened(tmp_path, store).fetch(spec("huggingface/org_name"))

    assert list((tmp_path / "models").rglob("*.json*")) != []  # the record of what was listed
    assert list((tmp_path / "models").rglob("*.safetensors")) == []


def test_an_operators_link_to_a_larger_disk_is_kept(tmp_path: Path) -> None:
    put(tmp_path / "hub", "gguf/org_name/x.gguf")
    (tmp_path / "large").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models/gguf").symlink_to(tmp_path / "large")
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))

    files = cache.fetch(spec())

    assert (tmp_path / "models/gguf/org_name/x.gguf").samefile(files.path)
    assert cache.lookup(spec()) == files
