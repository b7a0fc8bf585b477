"""Engines of several processes talk through /dev/shm; what they leave there is memory."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from reconciler.plan.ids import ModelName
from tests.apply.dead_agent import LOAD_NOTED, DeadAgent, dead_agent
from tests.apply.world import SPEC, STAND_IN, World, instance

# As vLLM does: a child that talks with its parent through memory of the two, here without the
# tracker that removes it at a clean end.
_PROGRAM = """
import os, signal, sys, time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *args: None
signal.signal(signal.SIGTERM, signal.SIG_IGN)
own = shared_memory.SharedMemory(create=True, size=4096)
given = shared_memory.SharedMemory(name=sys.argv[1])
leads = os.fork() > 0
open(sys.argv[2], "a").write(own.name + "\\n")
if leads and sys.argv[3:]:
    os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
time.sleep(3600)
"""


@pytest.fixture
def strangers() -> Iterator[SharedMemory]:
    """A segment of another program, which the backend has mapped too."""
    memory = SharedMemory(create=True, size=4096)
    yield memory
    memory.close()
    memory.unlink()


async def test_a_killed_spawn_leaves_no_shared_memory_and_takes_none_of_others(
    world: World, tmp_path: Path, strangers: SharedMemory
) -> None:
    told = tmp_path / "told"
    argv = (sys.executable, "-c", _PROGRAM, strangers.name, str(told))
    view = await world.spawn(argv=argv)
    await world.until(lambda: told.exists() and told.read_text().count("\n") == 2, "it is there")
    segment = Path("/dev/shm") / told.read_text().split()[0]
    assert segment.exists()

    await world.stop(view, stop_seconds=0.05)

    assert world.processes() == []
    assert not segment.exists()
    assert (Path("/dev/shm") / strangers.name).exists()


async def test_a_child_that_outlives_its_leader_is_followed_by_its_shared_memory(
    world: World, tmp_path: Path, strangers: SharedMemory
) -> None:
    """vllm#55510, where the workers also kept 160 MiB of it."""
    told = tmp_path / "told"
    argv = (sys.executable, "-c", _PROGRAM, strangers.name, str(told))
    view = await world.spawn(argv=argv)
    await world.until(lambda: told.exists() and told.read_text().count("\n") == 2, "it is there")

    await world.end(view.pid)
    await world.exit_of(view)

    assert not (Path("/dev/shm") / told.read_text().split()[0]).exists()


async def test_a_kill_of_all_its_processes_at_once_leaves_none_either(
    world: World, tmp_path: Path, strangers: SharedMemory
) -> None:
    told = tmp_path / "told"
    port = world.backends.free_port()
    serves = (str(STAND_IN), "--port", str(port), "--name", "x")
    argv = (sys.executable, "-c", _PROGRAM, strangers.name, str(told), *serves)
    view = await world.backends.spawn(
        model=ModelName("x"),
        spec=SPEC,
        instance=instance(),
        gpus=(),
        launch=world.launch(argv=argv, port=port),
    )
    world.sessions.add(view.pid)
    await world.until(lambda: world.view(view).loaded_at is not None, "it is loaded")

    os.killpg(view.pid, signal.SIGKILL)
    await world.exit_of(view)

    assert not (Path("/dev/shm") / told.read_text().split()[0]).exists()


async def test_a_load_that_is_killed_as_a_whole_leaves_none_either(world: World) -> None:
    view = await world.spawn("--shared-memory", "--ready-after", "3600")
    (record,) = world.records()
    await world.until(lambda: noted(record) is not None, "it is noted")
    segment = noted(record)
    assert segment is not None

    os.killpg(view.pid, signal.SIGKILL)
    await world.exit_of(view)

    assert not segment.exists()


async def test_what_died_while_no_agent_was_there_leaves_none_either(world: World) -> None:
    dead, segment = await sharing(world)
    await world.end(dead.pid)
    assert segment.exists()

    await dead.next_agent()

    assert not segment.exists()


async def test_what_somebody_made_under_the_same_name_since_is_left_alone(world: World) -> None:
    dead, segment = await sharing(world)
    await world.end(dead.pid)
    theirs = segment.with_name("psm_of_a_stranger")
    theirs.write_bytes(b"theirs")
    theirs.replace(segment)
    try:
        await dead.next_agent()
        assert segment.read_bytes() == b"theirs"
    finally:
        segment.unlink()


async def sharing(world: World) -> tuple[DeadAgent, Path]:
    """A backend whose agent is dead, and its segment."""
    dead = await dead_agent(world, "--shared-memory", note=LOAD_NOTED)
    segment = noted(dead.record)
    assert segment is not None
    return dead, segment


def noted(record: Path) -> Path | None:
    names = json.loads(record.read_text())["shared_memory"]
    return Path("/dev/shm", *names) if names else None
