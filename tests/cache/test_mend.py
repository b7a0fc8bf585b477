"""Files that look changed: what is right is kept without the hub, what is rotten comes again."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cache.model_cache import ModelCache
from reconciler.cache.news import FileRotten, News
from reconciler.cache.store import Store
from reconciler.errors import Rejected, Transient
from reconciler.hub.directory import DirectoryStore
from tests.cache.caches import BIG, opened
from tests.cache.specs import CountingStore, put, spec
from tests.cache.test_catalogued import pushed
from tests.s3_server import S3Server, s3_store


@pytest.fixture
def s3_hub(server: S3Server, bucket: str) -> Iterator[tuple[Path, Store]]:
    """A hub that tells the MD5 of what it holds, and its folder."""
    with s3_store(server.settings(bucket)) as store:
        yield server.folder / bucket, store


def rot(path: Path) -> None:
    """One byte, in place: the size stays."""
    with path.open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def fetched(tmp_path: Path, store: Store) -> tuple[ModelCache, Path]:
    cache = opened(tmp_path, store)
    return cache, Path(cache.fetch(spec()).path)


def news(cache: ModelCache) -> tuple[News, ...]:
    return cache.keeper.take_news()


def test_a_touched_file_is_read_once_and_kept_with_the_hub_away(tmp_path: Path) -> None:
    """gpustack#2519, #2566 (scenario 80): what is cached is used offline."""
    (tmp_path / "hub").mkdir()
    pushed(tmp_path / "hub", {"x.gguf": BIG}, source=tmp_path / "v1")
    _, path = fetched(tmp_path, DirectoryStore(tmp_path / "hub"))
    os.utime(path, (0, 0))
    cache = opened(tmp_path, None)
    assert cache.lookup(spec()) is None
    told: list[tuple[int, int]] = []

    found = cache.fetch(spec(), on_check=lambda done, total: told.append((done, total)))

    assert found.path == str(path)
    assert cache.lookup(spec()) == found
    assert opened(tmp_path, None).lookup(spec()) == found
    assert news(cache) == ()
    assert all(total == len(BIG) for _, total in told)


def test_a_rotten_file_is_fetched_again_and_told(
    tmp_path: Path, s3_hub: tuple[Path, Store]
) -> None:
    """ollama#17520 (scenario 30): a damaged file never passes as a model, and heals by itself."""
    folder, store = s3_hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    cache, path = fetched(tmp_path, store)
    rot(path)
    assert cache.lookup(spec()) is None

    found = cache.fetch(spec())

    (told,) = news(cache)
    assert isinstance(told, FileRotten)
    assert (told.path, told.size_bytes) == ("x.gguf", len(BIG))
    assert "its MD5 is" in told.reason
    assert path.read_bytes() == BIG
    assert cache.lookup(spec()) == found


def test_only_the_rotten_file_comes_again(tmp_path: Path) -> None:
    store = CountingStore(tmp_path / "hub")
    files = {f"x-0000{number}-of-00002.gguf": BIG + bytes([number]) for number in (1, 2)}
    (tmp_path / "hub").mkdir()
    pushed(tmp_path / "hub", files, source=tmp_path / "v1")
    cache, path = fetched(tmp_path, store)
    before = len(store.read_keys)
    os.truncate(path, 5)
    os.utime(path.with_name("x-00002-of-00002.gguf"), (0, 0))

    cache.fetch(spec())

    read = [key for key in store.read_keys[before:] if "/.xgen/" not in key]
    assert read == ["gguf/org_name/x-00001-of-00002.gguf"]
    assert path.read_bytes() == BIG + bytes([1])


def test_without_a_hub_a_rotten_file_is_said_and_not_served(
    tmp_path: Path, s3_hub: tuple[Path, Store]
) -> None:
    folder, store = s3_hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    _, path = fetched(tmp_path, store)
    rot(path)
    cache = opened(tmp_path, None)

    with pytest.raises(Rejected, match="no hub is set"):
        cache.fetch(spec())

    assert [type(each) for each in news(cache)] == [FileRotten]
    assert cache.lookup(spec()) is None


def test_a_rotten_file_is_not_shared_with_a_newer_revision(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    for number in (1, 2):
        put(folder, f"gguf/org_name/x-0000{number}-of-00002.gguf", BIG)
    cache, path = fetched(tmp_path, store)
    rot(path)
    put(folder, "gguf/org_name/x-00002-of-00002.gguf", BIG[::-1])

    cache.refresh(spec())

    found = cache.lookup(spec())
    assert found is not None
    assert Path(found.path) != path
    assert Path(found.path).read_bytes() == BIG


def test_files_of_an_older_release_count_as_they_are(tmp_path: Path) -> None:
    """No terabyte is hashed because of an upgrade; from then on a change is seen."""
    put(tmp_path / "hub", "gguf/org_name/x.gguf", BIG)
    _, path = fetched(tmp_path, DirectoryStore(tmp_path / "hub"))
    (stamps,) = path.parent.parent.glob("*.stamps")
    stamps.unlink()

    cache = opened(tmp_path, None)

    assert cache.lookup(spec()) is not None
    os.utime(path, (0, 0))
    assert cache.lookup(spec()) is None


def test_a_check_can_be_given_up(tmp_path: Path, s3_hub: tuple[Path, Store]) -> None:
    folder, store = s3_hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    cache, path = fetched(tmp_path, store)
    os.utime(path, (0, 0))

    with pytest.raises(Transient, match="no longer wanted"):
        cache.fetch(spec(), cancelled=lambda: True)

    assert path.read_bytes() == BIG


def test_a_changed_file_is_no_reason_to_serve_an_older_revision(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    cache, _ = fetched(tmp_path, store)
    put(folder, "gguf/org_name/x.gguf", BIG[::-1])
    cache.refresh(spec())
    newer = cache.lookup(spec())
    assert newer is not None
    os.utime(newer.path, (0, 0))

    assert cache.lookup(spec()) is None
    assert cache.fetch(spec()) == newer


@pytest.fixture
def read_only(tmp_path: Path, s3_hub: tuple[Path, Store]) -> Iterator[Path]:
    """A models folder that was copied, and cannot be written: as of an image."""
    folder, store = s3_hub
    put(folder, "gguf/org_name/x.gguf", BIG)
    fetched(tmp_path, store)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "models", copy / "models", symlinks=True)
    mount = ["mount", "-o", "bind,ro", str(copy), str(copy)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield copy
    finally:
        subprocess.run(["umount", str(copy)], check=True)


def test_a_copy_that_cannot_be_written_is_read_and_used(read_only: Path) -> None:
    """Its inodes are others than those of the stamps."""
    cache = opened(read_only, None)
    assert cache.lookup(spec()) is None

    found = cache.fetch(spec())

    assert Path(found.path).read_bytes() == BIG
    assert cache.lookup(spec()) == found
