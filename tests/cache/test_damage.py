"""What was damaged in the hub is not fetched again until the hub holds something else (R7).

In a folder, and on a real S3 server; the files are damaged in place, as large as before.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from reconciler.cache.model_cache import ModelCache
from reconciler.cache.store import Store
from reconciler.errors import Damaged, Gone, Transient
from reconciler.hub.catalog import Catalog
from reconciler.hub.directory import DirectoryStore
from reconciler.plan.desired import ModelSpec
from tests.cache.caches import BIG, opened
from tests.cache.specs import spec
from tests.cache.test_catalogued import PREFIX, pushed
from tests.cache.test_mend import rot

SHARDS = ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf")


class Watched:
    """A store of which one sees what was read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.location = store.location
        self.reads_at_once = store.reads_at_once
        self.objects, self.prefixes = store.objects, store.prefixes
        self.read_keys: list[str] = []

    def read(self, stored: Any, fd: int, **callbacks: Any) -> None:
        self.read_keys.append(stored.key)
        self._store.read(stored, fd, **callbacks)


class World:
    """A hub whose only model has a damaged second shard, and a node that has found that out."""

    def __init__(self, root: Path, folder: Path, store: Store) -> None:
        self.root = root
        self.folder = folder
        self.store = Watched(store)
        self.catalog = self.push(BIG[::-1], "v1")
        self.bad = folder / PREFIX / SHARDS[1]
        self.bad.write_bytes(BIG)
        self.cache = self.reopened()
        self.said = self.refused()

    def push(self, second: bytes, name: str, *, again: bool = False) -> Catalog:
        files = dict(zip(SHARDS, (BIG, second), strict=True))
        return pushed(self.folder, files, source=self.root / name, again=again)

    def mend(self) -> Catalog:
        """The same bytes as at first, uploaded again."""
        return self.push(BIG[::-1], "again", again=True)

    def reopened(self) -> ModelCache:
        """As by the next agent."""
        self.cache = opened(self.root, self.store)
        return self.cache

    def refused(self, wanted: ModelSpec | None = None) -> str:
        with pytest.raises(Damaged) as failed:
            self.cache.fetch(wanted or spec())
        return str(failed.value)

    def reads_of_the_bad(self) -> int:
        return sum(key.endswith(SHARDS[1]) for key in self.store.read_keys)


@pytest.fixture
def world(tmp_path: Path, hub: tuple[Path, Store]) -> World:
    folder, store = hub
    return World(tmp_path, folder, store)


def test_it_is_fetched_once_and_the_block_outlasts_the_agent(world: World) -> None:
    assert f"cannot fetch {PREFIX}/{SHARDS[1]} from {world.store.location}: " in f"{world.said} "
    assert (
        "does not match its sha256, after 3 fetches; push it again, with `hub push --again`"
        in world.said
    )
    read = len(world.store.read_keys)

    assert world.refused() == world.said
    world.reopened()
    assert world.refused() == world.said

    assert [key for key in world.store.read_keys[read:] if "x-0000" in key] == []
    assert world.cache.is_still_damaged(spec())
    assert world.cache.lookup(spec()) is None


def test_the_same_bytes_pushed_again_are_fetched(world: World) -> None:
    """The catalog's digest is the same as before; the object is another."""
    assert world.mend().digest == world.catalog.digest

    assert not world.cache.is_still_damaged(spec())
    files = world.cache.fetch(spec())

    assert Path(files.path).read_bytes() == BIG
    assert Path(files.root, SHARDS[1]).read_bytes() == BIG[::-1]
    assert not world.cache.is_still_damaged(spec())


def test_another_push_is_fetched(world: World) -> None:
    newer = world.push(BIG[:1000], "v2")

    assert not world.cache.is_still_damaged(spec())
    assert world.cache.fetch(spec()).revision == newer.digest


def test_a_pinned_push_stays_blocked_whatever_is_in_force(world: World) -> None:
    wanted = spec(digest=world.catalog.digest)
    world.refused(wanted)

    world.push(BIG[:1000], "v2")
    assert world.cache.is_still_damaged(wanted)
    read = world.reads_of_the_bad()
    world.refused(wanted)
    assert world.reads_of_the_bad() == read

    world.mend()
    assert not world.cache.is_still_damaged(wanted)
    assert world.cache.fetch(wanted).revision == world.catalog.digest


def test_an_operator_may_have_it_tried_anew(world: World) -> None:
    world.cache.try_anew(spec())
    assert not world.cache.is_still_damaged(spec())

    assert world.refused() == world.said

    assert world.reads_of_the_bad() == 2
    assert world.cache.is_still_damaged(spec())
    world.refused()
    assert world.reads_of_the_bad() == 2


def test_a_changed_manifest_is_another_attempt(world: World) -> None:
    changed = spec(extra_args={"threads": 2})
    assert not world.cache.is_still_damaged(changed)

    world.refused(changed)

    assert world.reads_of_the_bad() == 2
    assert world.cache.is_still_damaged(changed)


def test_another_hub_may_have_a_good_one(world: World, tmp_path: Path) -> None:
    """Carried from there with its times, so that only its place tells."""
    other = tmp_path / "other"
    other.mkdir()
    pushed(other, dict(zip(SHARDS, (BIG, BIG[::-1]), strict=True)), source=tmp_path / "carried")
    times = world.bad.stat()
    os.utime(other / PREFIX / SHARDS[1], ns=(times.st_atime_ns, times.st_mtime_ns))

    cache = opened(tmp_path, DirectoryStore(other))

    assert Path(cache.fetch(spec()).root, SHARDS[1]).read_bytes() == BIG[::-1]


def test_a_hub_that_is_away_says_nothing(world: World) -> None:
    away = world.folder.rename(world.folder.with_name("away"))
    try:
        with pytest.raises(Transient):
            world.cache.is_still_damaged(spec())
        with pytest.raises(Transient):
            world.cache.fetch(spec())
    finally:
        away.rename(world.folder)

    assert world.refused() == world.said


def test_a_push_that_the_hub_has_no_more_is_no_damage(world: World) -> None:
    wanted = spec(digest=world.catalog.digest)
    world.refused(wanted)
    world.bad.unlink()

    assert not world.cache.is_still_damaged(wanted)
    with pytest.raises(Gone, match="is missing"):
        world.cache.fetch(wanted)


def test_what_rots_here_and_is_damaged_there_waits_for_that_push(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    """`refresh: never`: a newer push is not taken instead."""
    folder, given = hub
    store = Watched(given)
    first = pushed(folder, {"x.gguf": BIG}, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    path = Path(cache.fetch(spec()).path)
    (folder / PREFIX / "x.gguf").write_bytes(BIG[::-1])
    rot(path)

    for _ in range(2):
        with pytest.raises(Damaged, match="after 3 fetches"):
            cache.fetch(spec())
    assert store.read_keys.count(f"{PREFIX}/x.gguf") == 2
    assert cache.is_still_damaged(spec())

    pushed(folder, {"x.gguf": b"newer"}, source=tmp_path / "v2")
    assert cache.is_still_damaged(spec())

    pushed(folder, {"x.gguf": BIG}, source=tmp_path / "again", again=True)
    assert not cache.is_still_damaged(spec())
    assert cache.fetch(spec()).revision == first.digest
    assert path.read_bytes() == BIG


def test_damage_that_cannot_be_read_is_forgotten(world: World) -> None:
    """It costs a fetch, and no more."""
    (note,) = (world.root / "models/.rev").glob("*/*/.damaged")
    note.write_bytes(note.read_bytes()[:-9])

    assert world.refused() == world.said

    assert world.reads_of_the_bad() == 2


def test_a_model_that_was_imported_has_the_same_rule(tmp_path: Path) -> None:
    """The hub holds it, so that its repository is asked for nothing."""
    (tmp_path / "hub").mkdir()
    store = Watched(DirectoryStore(tmp_path / "hub"))
    catalog = pushed(tmp_path / "hub", {"x.gguf": BIG}, source=tmp_path / "v1")
    (tmp_path / "hub" / PREFIX / "x.gguf").write_bytes(BIG[::-1])
    cache = opened(tmp_path, store)
    wanted = spec("hf://org/name", file="x.gguf")

    for _ in range(2):
        with pytest.raises(Damaged, match="after 3 fetches"):
            cache.fetch(wanted)
    assert store.read_keys.count(f"{PREFIX}/x.gguf") == 1

    pushed(tmp_path / "hub", {"x.gguf": BIG}, source=tmp_path / "again", again=True)
    assert not cache.is_still_damaged(wanted)
    assert cache.fetch(wanted).revision == catalog.digest
