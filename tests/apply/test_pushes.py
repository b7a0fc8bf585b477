"""Newer pushes to a real hub in a folder: told, or brought beside what is here."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.apply.pushes import Pace, Pushes, Watched
from reconciler.cache.budget import Budget
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pins import pins_of
from reconciler.errors import Transient
from reconciler.hub.catalog import CATALOG, Catalog
from reconciler.plan.desired import Refresh
from reconciler.plan.ids import ModelName
from reconciler.status import Doing, Progress
from tests.apply.test_comparisons import until
from tests.cache.specs import CountingStore, put, spec
from tests.cache.test_catalogued import PREFIX, pushed

MODEL = ModelName("m")
FAST = Pace(first=0.001, between=0.001, agree=0.001, retry=0.001)
NEVER_AGAIN = Pace(first=0.001, between=3600.0, agree=3600.0, retry=3600.0)


class World:
    """A model whose first push is here."""

    def __init__(self, folder: Path, pace: Pace = FAST, budget: Budget | None = None) -> None:
        self.folder = folder
        self.hub = folder / "hub"
        if not self.hub.exists():
            self.hub.mkdir()
            self.push(b"first")
        self.store = CountingStore(self.hub)
        self.cache = ModelCache(folder / "models", self.store, budget=budget)
        self.cache.open()
        self.files = self.cache.fetch(spec())
        self.woken = asyncio.Event()
        self.pushes = Pushes(self.cache, wake=self.woken.set, pace=pace)

    def push(self, content: bytes) -> Catalog:
        return pushed(self.hub, {"x.gguf": content}, source=self.folder / content.decode())

    def copy(self, content: bytes) -> None:
        """As another tool would, to a prefix that has no catalog any more."""
        shutil.rmtree(self.hub / PREFIX)
        put(self.hub, f"{PREFIX}/x.gguf", content)

    def watch(self, refresh: Refresh = Refresh.NEVER, *, gives_way: bool = False) -> None:
        watched = Watched(
            spec=spec(),
            digest=self.files.digest,
            refresh=refresh,
            limit_seconds=None,
            gives_way=gives_way,
        )
        self.pushes.watch({MODEL: watched})

    async def looked(self, times: int) -> None:
        before = self.store.listed
        await until(lambda: self.store.listed >= before + times)

    @property
    def revision(self) -> str | None:
        found = self.cache.lookup(spec())
        return found.revision if found is not None else None

    @property
    def served(self) -> bytes:
        """What a backend that was started before still has."""
        return Path(self.files.path).read_bytes()

    @property
    def reason(self) -> str:
        noticed = self.pushes.noticed.get(MODEL)
        return noticed.reason if noticed else ""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.pushes.close()


async def test_the_same_push_is_no_news(world: World) -> None:
    world.watch()

    await world.looked(10)

    assert not world.woken.is_set()
    assert world.pushes.noticed == {}


async def test_a_newer_push_is_told_and_the_files_stay(world: World) -> None:
    world.watch()
    newer = world.push(b"second")

    await until(world.woken.is_set)

    noticed = world.pushes.noticed[MODEL]
    assert noticed.push is not None
    assert noticed.push.revision == newer.digest
    assert noticed.reason == (
        f"a newer push is in the hub: digest {newer.digest}; "
        "`refresh: auto` or `digest:` takes it up"
    )
    await world.looked(5)
    assert world.cache.lookup(spec()) == world.files


async def test_what_was_pushed_back_is_no_news_any_more(world: World) -> None:
    world.watch()
    world.push(b"second")
    await until(lambda: MODEL in world.pushes.noticed)

    pushed(world.hub, {"x.gguf": b"first"}, source=world.folder / "back")

    await until(lambda: MODEL not in world.pushes.noticed)


@pytest.mark.parametrize("catalog", [True, False])
async def test_what_is_copied_there_without_a_catalog_is_given_the_whole_pause(
    tmp_path: Path, catalog: bool
) -> None:
    """triton#5711 (scenario 32): a poll sees half a repository."""
    world = World(tmp_path, replace(NEVER_AGAIN, agree=0.001))
    world.copy(b"second")
    if catalog:
        world.push(b"third")
    looks = world.store.listed
    world.watch()

    await until(lambda: world.store.listed == looks + 1)
    if catalog:
        await until(lambda: MODEL in world.pushes.noticed)
    else:
        world.pushes.hurry(MODEL)
        await until(lambda: world.store.listed == looks + 2)
        await until(lambda: MODEL in world.pushes.noticed)
    assert world.store.listed == looks + 2
    await world.pushes.close()


async def test_a_damaged_catalog_is_told_until_it_is_mended(world: World) -> None:
    (world.hub / PREFIX / CATALOG).write_bytes(b"{")
    world.watch()

    await until(world.woken.is_set)
    await world.looked(4)
    noticed = world.pushes.noticed[MODEL]
    world.push(b"first")
    await until(lambda: world.reason == "")

    assert noticed.push is None
    assert noticed.reason.startswith(
        f"whether the hub holds a newer push cannot be seen: cannot read catalog {PREFIX}/{CATALOG}"
    )
    assert world.served == b"first"


async def test_a_hub_that_is_away_takes_nothing_back(world: World) -> None:
    world.watch()
    world.push(b"second")
    await until(lambda: MODEL in world.pushes.noticed)

    world.hub.rename(world.folder / "away")

    await world.looked(5)
    assert MODEL in world.pushes.noticed


async def test_what_every_look_sees_anew_is_not_taken_up(world: World) -> None:
    """A push after the other: the last one counts."""
    pushes = iter(range(1000))

    def push_once_more(_looks: int) -> None:
        world.push(f"push-{next(pushes)}".encode())

    world.store.on_listing = push_once_more
    world.watch(Refresh.AUTO)

    await world.looked(10)

    assert world.cache.lookup(spec()) == world.files
    assert world.pushes.noticed == {}


async def test_refresh_auto_brings_it_and_wakes_the_loop(world: World) -> None:
    world.watch(Refresh.AUTO)
    newer = world.push(b"second")

    await until(lambda: world.revision == newer.digest)
    await until(lambda: MODEL not in world.pushes.noticed)
    assert world.woken.is_set()
    assert world.served == b"first"


async def test_a_pull_that_fails_is_told_and_tried_again(world: World) -> None:
    newer = world.push(b"second")
    read, told = world.store.read, list[str]()

    def refused(stored: Any, fd: int, **callbacks: Any) -> None:
        if stored.size_bytes == len(b"second") and len(told) < 3:
            told.append(world.reason)
            raise Transient("cannot fetch x.gguf: the hub was slow")
        read(stored, fd, **callbacks)

    world.store.read = refused  # type: ignore[method-assign]
    world.watch(Refresh.AUTO)

    await until(lambda: world.revision == newer.digest)

    start = f"a newer push is in the hub: digest {newer.digest}; "
    assert told == [f"{start}it is fetched, then taken up"] * 3
    await until(lambda: MODEL not in world.pushes.noticed)


async def test_what_is_damaged_in_the_hub_is_not_fetched_again_and_again(world: World) -> None:
    newer = world.push(b"second")
    (file,) = world.store.objects(PREFIX)
    stored = world.hub / file.key
    stored.write_bytes(b"SECOND")
    world.watch(Refresh.AUTO)

    await until(lambda: "does not match its sha256" in world.reason)
    said = world.reason
    assert said.endswith(
        "push it again, with `hub push --again`; it is fetched once the hub holds another file "
        "there, or by `xgen-model reconcile --retry`"
    )
    assert world.cache.lookup(spec()) == world.files
    await world.looked(10)
    assert (world.reason, world.store.read_keys.count(file.key)) == (said, 1)
    world.cache.try_anew(spec())
    await until(lambda: world.store.read_keys.count(file.key) == 2)
    await until(lambda: world.reason == said)
    await world.looked(10)
    assert world.store.read_keys.count(file.key) == 2

    stored.write_bytes(b"second")

    await until(lambda: MODEL not in world.pushes.noticed)
    assert world.revision == newer.digest
    assert world.store.read_keys.count(file.key) == 3


async def test_a_pull_that_nobody_wants_any_more_ends(world: World) -> None:
    newer = world.push(b"second")
    begun, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    read = world.store.read

    def slow(stored: Any, fd: int, **callbacks: Any) -> None:
        if ".json" not in stored.key:
            loop.call_soon_threadsafe(begun.set)
            while not callbacks["cancelled"]():
                pass
            loop.call_soon_threadsafe(ended.set)
        read(stored, fd, **callbacks)

    world.store.read = slow  # type: ignore[method-assign]
    world.watch(Refresh.AUTO)
    await until(begun.is_set)
    assert world.reason.endswith(f"digest {newer.digest}; it is fetched, then taken up")
    assert world.pushes.noticed[MODEL].progress == Progress(
        doing=Doing.FETCH, done_bytes=0, total_bytes=len(b"second")
    )

    world.pushes.watch({})

    await until(ended.is_set)
    await until(lambda: world.pushes.noticed == {})
    assert world.cache.lookup(spec()) == world.files


async def test_an_operator_need_not_wait_for_the_pause(tmp_path: Path) -> None:
    world = World(tmp_path, NEVER_AGAIN)
    world.push(b"second")
    looks = world.store.listed
    world.watch()
    await until(lambda: world.store.listed == looks + 1)

    world.pushes.hurry(None)

    await until(lambda: MODEL in world.pushes.noticed)
    await world.pushes.close()


async def test_a_model_that_changes_is_watched_as_it_is_now(world: World) -> None:
    world.watch()
    newer = world.push(b"second")
    await until(lambda: MODEL in world.pushes.noticed)

    world.files = replace(world.files, digest=newer.files[0].sha256)  # type: ignore[arg-type]
    world.cache.refresh(spec())
    world.watch()

    await until(lambda: world.pushes.noticed == {})


@pytest.mark.parametrize("gives_way", [True, False])
async def test_a_push_without_room_is_brought_only_once_what_is_here_may_go(
    tmp_path: Path, gives_way: bool
) -> None:
    mib = 2**20
    put(tmp_path, f"hub/{PREFIX}/x.gguf", bytes(mib))
    world = World(tmp_path, budget=Budget(size_bytes=mib + mib // 2))
    held = world.cache.needed(spec())
    world.cache.keeper.pin(pins_of([(MODEL, held)]))
    world.copy(b"1" * mib)

    world.watch(Refresh.AUTO, gives_way=gives_way)

    if gives_way:
        await until(lambda: world.cache.lookup(spec()) is None)
        assert held[0] not in world.cache.needed(spec())
        assert world.pushes.noticed == {}
    else:
        way_out = "; `keep_last_good: false` would give up what serves to make the room; tried"
        await until(lambda: way_out in world.reason)
        assert f"cannot fetch {PREFIX}: 1.0 MiB are needed" in world.reason
        assert world.cache.lookup(spec()) == world.files
    assert len(world.served) == mib
    await world.pushes.close()
