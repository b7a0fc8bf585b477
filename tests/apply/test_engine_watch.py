"""The watch over engines: what changes is taken up, and an end is not held up by nothing."""

import asyncio
from functools import partial
from pathlib import Path

from reconciler.apply.engine_watch import EngineWatch
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import Inventory
from tests.backend.build import executable
from tests.backend.test_discovery import Watched
from tests.e2e.agent import is_alive
from tests.waiting import wait_until


async def test_a_replaced_engine_is_taken_up_and_wakes_the_loop(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.put("1")
    awake = asyncio.Event()
    engines = Engines(watched.discovery.look())
    first = engines.inventory

    async with EngineWatch(
        watched.discovery.look, engines, wake=awake.set, pause_seconds=0.01
    ).looking():
        watched.put("2")
        async with asyncio.timeout(30):
            await awake.wait()

    assert engines.inventory is not first
    build = engines.inventory.build("llama-server-cpu")
    assert build is not None
    assert build.version == "2"


async def test_the_first_look_is_at_once(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.put("1")
    awake = asyncio.Event()
    engines = Engines(Inventory())
    assert not engines.inventory.known

    async with EngineWatch(
        watched.discovery.look, engines, wake=awake.set, pause_seconds=3600
    ).looking():
        async with asyncio.timeout(30):
            await awake.wait()

    assert engines.inventory.build("llama-server-cpu") is not None


async def test_what_stays_wakes_nobody(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.put("1")
    awake = asyncio.Event()
    engines = Engines(watched.discovery.look())
    first, looks = engines.inventory, watched.looks

    async with EngineWatch(
        watched.discovery.look, engines, wake=awake.set, pause_seconds=0.001
    ).looking():
        more = partial(wait_until, lambda: watched.looks >= looks + 5, what="five more looks")
        await asyncio.to_thread(more)

    assert engines.inventory is first
    assert not awake.is_set()
    assert watched.asked == 1


async def test_why_engines_cannot_be_looked_for_is_told_once_till_they_can(tmp_path: Path) -> None:
    watched, there = Watched(tmp_path), tmp_path / "there"
    watched.put("1")
    awake = asyncio.Event()
    woken, looks = [], []
    engines = Engines(Inventory())

    def look() -> Inventory:
        looks.append(there)
        there.stat()
        return watched.discovery.look()

    def wake() -> None:
        woken.append(engines.inventory.failure)
        awake.set()

    async with EngineWatch(look, engines, wake=wake, pause_seconds=0.001).looking():
        more = partial(wait_until, lambda: len(looks) >= 5, what="five looks")
        await asyncio.to_thread(more)
        (why,) = woken
        assert why == f"FileNotFoundError: [Errno 2] No such file or directory: '{there}'"
        assert not engines.inventory.known

        awake.clear()
        there.touch()
        async with asyncio.timeout(30):
            await awake.wait()
        assert (engines.inventory.known, engines.inventory.failure) == (True, None)

        there.unlink()
        known, before = engines.inventory, len(looks)
        more = partial(wait_until, lambda: len(looks) >= before + 5, what="five more looks")
        await asyncio.to_thread(more)

    assert engines.inventory is known


async def test_an_engine_that_does_not_answer_holds_up_no_end(tmp_path: Path) -> None:
    watched, pid = Watched(tmp_path), tmp_path / "pid"
    watched.put("1")
    engines = Engines(watched.discovery.look())
    first = engines.inventory
    watch = EngineWatch(watched.discovery.look, engines, wake=lambda: None, pause_seconds=0.01)

    async with watch.looking():
        hangs = executable(
            tmp_path / "new", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600", "/bin/sh"
        )
        hangs.replace(watched.path)
        await asyncio.to_thread(partial(wait_until, pid.exists, what="it is asked"))

    assert not is_alive(int(pid.read_text()))
    assert engines.inventory is first
