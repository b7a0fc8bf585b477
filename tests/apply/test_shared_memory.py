"""Engines of several processes talk through /dev/shm; what they leave there is memory."""

import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest

from reconciler.plan.ids import ModelName
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
