"""Engines of several processes talk through /dev/shm; what they leave there is memory."""

import sys
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from tests.apply.world import World

# As vLLM does: a child that talks with its parent through memory of the two, here without the
# tracker that removes it at a clean end.
_PROGRAM = """
import os, signal, sys, time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *args: None
signal.signal(signal.SIGTERM, signal.SIG_IGN)
own = shared_memory.SharedMemory(create=True, size=4096)
given = shared_memory.SharedMemory(name=sys.argv[1])
os.fork()
open(sys.argv[2], "a").write(own.name + "\\n")
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
