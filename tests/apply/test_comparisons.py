"""Files that seem to be bad are compared with a real hub in a folder, until it holds other ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from reconciler.apply.comparisons import Comparisons, Doubt
from reconciler.cache.model_cache import ModelCache
from reconciler.plan.ids import ModelName
from tests.cache.specs import CountingStore, put, spec

MODEL = ModelName("m")


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


class World:
    """A model that was fetched while it was pushed; the hub is asked without a pause."""

    def __init__(self, folder: Path, *, pause_seconds: float = 0.001) -> None:
        self.folder = folder
        put(folder / "hub", "gguf/org_name/x.gguf", b"half")
        self.store = CountingStore(folder / "hub")
        self.cache = ModelCache(folder / "models", self.store)
        self.cache.open()
        self.files = self.cache.fetch(spec())
        self.woken = asyncio.Event()
        self.comparisons = Comparisons(
            self.cache,
            wake=self.woken.set,
            first_delay_seconds=pause_seconds,
            longest_delay_seconds=pause_seconds,
        )

    def push(self, content: bytes) -> None:
        put(self.folder / "hub", "gguf/org_name/x.gguf", content)

    def doubt(self) -> None:
        self.comparisons.doubt({MODEL: Doubt(spec=spec(), digest=self.files.digest)})

    async def until(self, holds: Callable[[], bool]) -> None:
        await until(holds)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.comparisons.close()


async def test_what_the_hub_holds_instead_is_fetched(world: World) -> None:
    world.doubt()
    world.push(b"half and half")

    async with asyncio.timeout(30):
        await world.woken.wait()

    assert world.cache.lookup(spec()) is None
    assert world.cache.fetch(spec()).size_bytes == len(b"half and half")


async def test_what_still_changes_is_not_yet_fetched(world: World) -> None:
    """A copy under way would be fetched again and again, half of it each time."""

    def grow(looks: int) -> None:
        world.push(b"half" * (looks + 2))

    world.store.on_listing = grow
    world.doubt()

    await world.until(lambda: world.store.listed > 20)

    assert not world.woken.is_set()
    assert world.cache.lookup(spec()) == world.files


async def test_files_that_the_hub_still_holds_stay(world: World) -> None:
    world.doubt()

    await world.until(lambda: world.store.listed > 20)

    assert not world.woken.is_set()
    assert world.cache.lookup(spec()) == world.files


async def test_a_hub_that_is_away_is_asked_again(world: World) -> None:
    hub = world.folder / "hub"
    hub.rename(world.folder / "away")
    world.doubt()
    await world.until(lambda: world.store.listed > 5)

    (world.folder / "away").rename(hub)
    world.push(b"whole")

    async with asyncio.timeout(30):
        await world.woken.wait()


async def test_an_operator_need_not_wait_for_the_pause(tmp_path: Path) -> None:
    world = World(tmp_path, pause_seconds=3600)
    looks = world.store.listed
    world.doubt()
    await world.until(lambda: world.store.listed == looks + 1)

    world.comparisons.hurry(MODEL)

    await world.until(lambda: world.store.listed == looks + 2)
    await world.comparisons.close()


async def test_what_is_no_longer_doubted_is_no_longer_asked_for(world: World) -> None:
    world.doubt()
    await world.until(lambda: world.store.listed > 5)

    world.comparisons.doubt({})

    tasks = [task for task in asyncio.all_tasks() if task.get_name() == f"compare:{MODEL}"]
    await asyncio.gather(*tasks, return_exceptions=True)
    assert world.cache.lookup(spec()) == world.files
    assert all(task.cancelled() for task in tasks)
