"""What is blocked by damaged files: a real hub in a folder is looked at until it holds others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reconciler.apply.mendings import Mendings
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Damaged
from reconciler.plan.ids import ModelName
from tests.apply.test_comparisons import until
from tests.cache.specs import CountingStore, spec
from tests.cache.test_catalogued import PREFIX, pushed

MODEL = ModelName("m")


class World:
    """A model whose file was damaged when it was fetched."""

    def __init__(self, folder: Path, *, between_seconds: float = 0.001) -> None:
        self.folder = folder
        self.hub = folder / "hub"
        self.hub.mkdir()
        self.push("first")
        (self.hub / PREFIX / "x.gguf").write_bytes(b"WEIGHTS")
        self.store = CountingStore(self.hub)
        self.cache = ModelCache(folder / "models", self.store)
        self.cache.open()
        with pytest.raises(Damaged):
            self.cache.fetch(spec())
        self.woken = asyncio.Event()
        self.mendings = Mendings(self.cache, wake=self.woken.set, between_seconds=between_seconds)
        self.mendings.watch({MODEL: spec()})

    def push(self, name: str) -> None:
        pushed(self.hub, {"x.gguf": b"weights"}, source=self.folder / name, again=True)

    async def looked(self, times: int) -> None:
        before = self.store.listed
        await until(lambda: self.store.listed >= before + times)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.mendings.close()


async def test_a_push_mends_it_and_no_look_fetches_a_byte(world: World) -> None:
    key = f"{PREFIX}/x.gguf"
    await world.looked(10)
    assert not world.woken.is_set()
    assert world.mendings.take_mended() == frozenset()

    world.push("again")

    async with asyncio.timeout(30):
        await world.woken.wait()
    assert world.mendings.take_mended() == {MODEL}
    assert world.store.read_keys.count(key) == 1


async def test_a_hub_that_is_away_mends_nothing(world: World) -> None:
    away = world.hub.rename(world.folder / "away")
    await world.looked(5)
    assert not world.woken.is_set()

    away.rename(world.hub)
    world.push("again")

    async with asyncio.timeout(30):
        await world.woken.wait()


async def test_an_operator_need_not_wait_for_the_pause(tmp_path: Path) -> None:
    world = World(tmp_path, between_seconds=3600.0)
    world.push("again")
    await asyncio.sleep(0)  # its task begins

    world.mendings.hurry(None)

    async with asyncio.timeout(30):
        await world.woken.wait()
    await world.mendings.close()


async def test_what_is_not_blocked_any_more_is_not_looked_at(world: World) -> None:
    await world.looked(2)
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == f"mendings:{MODEL}"]

    world.mendings.watch({})

    await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.cancelled() for task in tasks] == [True]
