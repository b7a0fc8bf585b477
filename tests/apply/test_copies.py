"""A record is of the folder that it was written into: a copy's agent touches nobody (R9)."""

import shutil
from pathlib import Path

import pytest

from tests.apply.conftest import mounted
from tests.apply.dead_agent import dead_agent
from tests.apply.world import World


async def test_a_copy_of_a_living_agents_folder_gives_nobody_away(
    world: World, tmp_path: Path
) -> None:
    view = await world.spawn_loaded("--child", "plain", children=1)
    copy = tmp_path / "copy"
    shutil.copytree(world.data_dir, copy)
    other = World(data_dir=copy, mark=world.mark)
    await other.backends.open()
    try:
        assert other.backends.live() == ()
        assert other.backends.leftovers() == ()
        assert len(other.backends.problems) == 2
        assert f"process {view.pid} (" in other.backends.problems[0]
        assert "another data folder's agent started" in other.backends.problems[0]
        other.backends.kill_now()
        assert len(world.processes()) == 2
        assert len(other.records()) == 1
    finally:
        await other.backends.close()

    await world.stop(view)
    other.backends = other.make_backends()
    await other.backends.open()
    try:
        assert other.backends.problems == ()
        assert other.backends.take_ended_unseen() == ()
        assert other.records() == []
    finally:
        await other.backends.close()


@pytest.mark.parametrize("way", ["moved", "mounted"])
async def test_one_folder_under_another_path_is_gone_on_with(
    world: World, tmp_path: Path, way: str
) -> None:
    dead = await dead_agent(world)
    other = tmp_path / "other"
    if way == "moved":
        world.data_dir = world.data_dir.rename(other)
        await dead.adopted()
        await dead.stop()
    else:
        other.mkdir()
        with mounted(["--bind", str(world.data_dir), str(other)], other):
            world.data_dir = other
            await dead.adopted()
            await dead.stop()
            await world.backends.close()
            world.data_dir = tmp_path / "data"

    assert world.records() == []
    assert world.processes() == []
