"""What a fetch that was killed has left, and what the next one makes of it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cache.journal import this_boot
from reconciler.cache.partial import name_of, open_partial
from reconciler.cache.record import RecordedObject
from reconciler.errors import Transient
from reconciler.hub.rate_limit import RateLimit
from reconciler.hub.s3 import S3Store
from tests.cache.caches import opened, remains
from tests.cache.specs import spec
from tests.hub.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.s3_server import S3Server, s3_store

MIB = 1 << 20
CONTENT = os.urandom(1_000_003) * 21  # parts of 8, 8 and 4 MiB, no two alike
SIZES = (8 * MIB, 8 * MIB, len(CONTENT) - 16 * MIB)
KEY = "gguf/org_name/x.gguf"


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(server.port) as running:
        yield running


@pytest.fixture
def store(server: S3Server, bucket: str, proxy: FaultProxy) -> Iterator[S3Store]:
    server.put(bucket, KEY, CONTENT)
    with s3_store(server.settings(bucket, endpoint=proxy.endpoint)) as opened_store:
        yield opened_store


class Left:
    """A partial and its journal, as a fetch of `CONTENT` has them that finished some parts."""

    def __init__(self, tmp_path: Path, store: S3Store, parts: tuple[int, ...] = (0, 1)) -> None:
        (stored,) = store.objects("gguf/org_name")
        item = RecordedObject(
            path="x.gguf", key=KEY, size_bytes=len(CONTENT), version=stored.version
        )
        self.folder = tmp_path / "models/.partial"
        self.folder.mkdir(parents=True)
        self.partial = self.folder / name_of(item)
        self.journal = self.folder / f"{name_of(item)}.journal"
        self.header = {
            "journal": 2,
            "key": KEY,
            "version": stored.version,
            "size": len(CONTENT),
            "part": 8 * MIB,
            "boot": this_boot(),
        }
        with self.partial.open("wb") as file:
            file.truncate(len(CONTENT))
            for index in parts:
                file.seek(8 * MIB * index)
                file.write(content_of(index))
        self.write(*(f"{index}\n" for index in parts))

    def write(self, *lines: str) -> None:
        self.journal.write_text(json.dumps(self.header) + "\n" + "".join(lines))


def content_of(index: int) -> bytes:
    return CONTENT[8 * MIB * index : 8 * MIB * (index + 1)]


def fetched(tmp_path: Path, store: S3Store) -> tuple[bytes, list[int]]:
    """The file, and what was told on the way."""
    told: list[int] = []
    files = opened(tmp_path, store).fetch(spec(), on_progress=lambda done, _: told.append(done))
    assert remains(tmp_path) == []
    return Path(files.path).read_bytes(), told


def test_only_what_is_not_finished_is_fetched(
    tmp_path: Path, store: S3Store, proxy: FaultProxy
) -> None:
    """gpustack#2582 (scenario 26)."""
    Left(tmp_path, store)

    content, told = fetched(tmp_path, store)

    assert content == CONTENT
    assert [get.offset for get in proxy.gets] == [16 * MIB]
    assert told[0] == 16 * MIB
    assert told == sorted(told)


def test_a_block_of_zeros_is_no_finished_part(
    tmp_path: Path, store: S3Store, proxy: FaultProxy
) -> None:
    """ollama#17520 (scenario 30): a power cut keeps the journal's line and loses the blocks."""
    left = Left(tmp_path, store)
    left.header["boot"] = "another"
    left.write("0\n", "synced\n", "1\n")
    with left.partial.open("r+b") as file:
        file.seek(8 * MIB + 4096)
        file.write(bytes(4096))

    content, told = fetched(tmp_path, store)

    assert content == CONTENT
    assert sorted(get.offset for get in proxy.gets) == [8 * MIB, 16 * MIB]
    assert told[0] == 8 * MIB
    assert told[-1] == len(CONTENT)


def test_what_was_on_the_disk_before_a_power_cut_is_there_after_the_next_kill_too(
    tmp_path: Path, store: S3Store, proxy: FaultProxy
) -> None:
    left = Left(tmp_path, store, parts=(0,))
    left.header["boot"] = "another"
    left.write("0\n", "synced\n")
    proxy.plan = lambda _get: Fault(answer=(403, "AccessDenied"))
    with pytest.raises(Transient):
        opened(tmp_path, store).fetch(spec())
    proxy.plan = lambda _get: None

    content, told = fetched(tmp_path, store)

    assert content == CONTENT
    assert told[0] == 8 * MIB
    assert {get.offset for get in proxy.gets} == {8 * MIB, 16 * MIB}


def test_a_large_file_is_synced_on_its_way(tmp_path: Path) -> None:
    item = RecordedObject(path="x.gguf", key=KEY, size_bytes=40 << 30, version="1")
    with open_partial(tmp_path, item) as partial:
        part_bytes, _ = partial.journal.begin(64 * MIB)
        for index in range(17):
            partial.journal.finished(index)

        lines = (tmp_path / f"{name_of(item)}.journal").read_text().splitlines()

    assert part_bytes == 64 * MIB
    assert lines[1:] == ["synced", *map(str, range(16)), "synced", "16"]


@pytest.mark.parametrize(
    "change",
    [
        {"journal": 1},
        {"journal": 3},
        {"key": "gguf/org_name/y.gguf"},
        {"version": "another"},
        {"size": len(CONTENT) + 1},
        {"part": 0},
        {"part": "many"},
    ],
    ids=str,
)
def test_a_journal_that_is_foreign_or_newer_is_begun_anew(
    tmp_path: Path, store: S3Store, proxy: FaultProxy, change: dict[str, object]
) -> None:
    """huggingface_hub#1498 (scenario 29): never appended to what is not this object's."""
    left = Left(tmp_path, store)
    left.header.update(change)
    left.write("0\n", "1\n")

    content, _ = fetched(tmp_path, store)

    assert content == CONTENT
    assert len(proxy.gets) == 3


@pytest.mark.parametrize("torn", ["1", "sync", "\0\0\0\0", "1 00c0ffee\n", "900\n"])
def test_a_torn_line_claims_nothing(
    tmp_path: Path, store: S3Store, proxy: FaultProxy, torn: str
) -> None:
    left = Left(tmp_path, store)
    left.write("0\n", torn)

    content, _ = fetched(tmp_path, store)

    assert content == CONTENT
    assert {16 * MIB, 8 * MIB} <= {get.offset for get in proxy.gets}


def test_a_journal_without_its_file_claims_nothing(
    tmp_path: Path, store: S3Store, proxy: FaultProxy
) -> None:
    Left(tmp_path, store).partial.unlink()

    content, told = fetched(tmp_path, store)

    assert content == CONTENT
    assert len(proxy.gets) == 3
    assert told[0] == 0


def test_what_is_wrong_on_the_disk_and_right_in_the_journal_is_found_by_the_digest(
    tmp_path: Path, store: S3Store, proxy: FaultProxy
) -> None:
    left = Left(tmp_path, store)
    with left.partial.open("r+b") as file:
        file.write(b"wrong")

    content, _ = fetched(tmp_path, store)

    assert content == CONTENT
    assert len(proxy.gets) == 1 + 3


def test_a_key_that_is_taken_away_midway_costs_no_finished_part(
    tmp_path: Path, store: S3Store, proxy: FaultProxy
) -> None:
    Left(tmp_path, store, parts=(0,))
    proxy.plan = lambda _get: Fault(answer=(403, "AccessDenied"))
    with pytest.raises(Transient, match="access denied; check MINIO_ACCESS_KEY"):
        opened(tmp_path, store).fetch(spec())
    proxy.plan = lambda _get: None

    content, told = fetched(tmp_path, store)

    assert content == CONTENT
    assert told[0] == 8 * MIB
    assert {get.offset for get in proxy.gets} == {8 * MIB, 16 * MIB}


def test_another_version_of_an_object_is_not_kept_for_ever(
    tmp_path: Path, server: S3Server, bucket: str, store: S3Store
) -> None:
    left = Left(tmp_path, store)
    server.put(bucket, KEY, CONTENT[::-1])

    content, _ = fetched(tmp_path, store)

    assert content == CONTENT[::-1]
    assert not left.partial.exists()


def test_what_can_be_gone_on_with_is_kept_for_a_week(tmp_path: Path, store: S3Store) -> None:
    left = Left(tmp_path, store)

    opened(tmp_path, store)
    assert left.partial.exists()
    week_ago = left.journal.stat().st_mtime - 8 * 86400
    os.utime(left.journal, (week_ago, week_ago))
    opened(tmp_path, store)

    assert remains(tmp_path) == []


def test_a_node_wide_rate_holds_for_parts_and_files(
    tmp_path: Path, server: S3Server, bucket: str
) -> None:
    taken: list[int] = []

    class Counting(RateLimit):
        def take(self, count: int, **_: object) -> None:
            taken.append(count)

    server.put(bucket, KEY, CONTENT)
    with s3_store(server.settings(bucket), Counting()) as store:
        opened(tmp_path, store).fetch(spec())

    assert sum(taken) >= len(CONTENT)
    assert max(taken) <= MIB
