"""Records that somebody removes or spoils while the agent runs are there again for the next one."""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.apply.custody import RecordRewritten
from reconciler.errors import Transient
from tests.apply.conftest import mounted
from tests.apply.dead_agent import LOAD_NOTED, DeadAgent
from tests.apply.world import SLEEP, World


def truncate(record: Path) -> None:
    os.truncate(record, 100)


def become_zeros(record: Path) -> None:
    """What a disk's repair may leave: as long as before."""
    record.write_bytes(bytes(record.stat().st_size))


def become_a_link(record: Path) -> None:
    shutil.move(record, record.with_name("elsewhere"))
    record.symlink_to("elsewhere")


def go_with_its_folder(record: Path) -> None:
    shutil.rmtree(record.parent)


def come_back_from_a_copy(record: Path) -> None:
    """Byte by byte as it was, but in another folder (by inode)."""
    folder = record.parent
    shutil.copytree(folder, folder.with_name("backup"))
    shutil.rmtree(folder)
    folder.with_name("backup").rename(folder)


HARMS: dict[str, tuple[Callable[[Path], None], str]] = {
    "removed": (Path.unlink, "was gone"),
    "removed with its folder": (go_with_its_folder, "was gone"),
    "truncated": (truncate, "was changed"),
    "zeros": (become_zeros, "was changed"),
    "readable by all": (lambda record: record.chmod(0o644), "had mode 0644"),
    "readable by nobody": (lambda record: record.chmod(0), "had mode 0000"),
    "a link": (become_a_link, "could not be read: "),
    "a copy": (come_back_from_a_copy, "lay in a copy of its folder"),
}


@pytest.mark.parametrize(("harm", "said"), HARMS.values(), ids=HARMS)
async def test_a_harmed_record_is_written_anew_and_told(
    world: World, harm: Callable[[Path], None], said: str
) -> None:
    view = await world.spawn_loaded()
    dead = DeadAgent(world=world, pid=view.pid)
    record = dead.record
    await world.until(lambda: LOAD_NOTED in record.read_text(), "it is noted")

    harm(record)

    told = await rewritten(world)
    assert (told.model, told.pid) == ("x", view.pid)
    assert told.reason.startswith(f"{record}, the record of x, pid {view.pid}: it {said}")
    assert not record.is_symlink()
    assert record.stat().st_mode & 0o777 == 0o600
    assert world.view(view).pid == view.pid
    assert (await dead.adopted()).pid == view.pid
    assert world.backends.problems == ()
    await dead.stop()
    assert record not in world.records()


async def test_what_did_no_harm_is_not_told(world: World) -> None:
    """A backup that links files, or somebody's touch; the other's loss shows that it was seen."""
    view = await world.spawn_loaded()
    record = DeadAgent(world=world, pid=view.pid).record
    await world.until(lambda: LOAD_NOTED in record.read_text(), "it is noted")
    first = record.stat().st_ino
    other = await world.spawn(argv=SLEEP, name="other")

    os.link(record, record.with_name("kept-by-a-backup"))
    record.touch()
    (its_record,) = (path for path in world.records() if '"other"' in path.read_text())
    its_record.unlink()

    assert (await rewritten(world)).pid == other.pid
    assert record.stat().st_ino == first
    await world.stop(view)
    await world.stop(other)


async def test_a_full_disk_is_told_until_there_is_room(world: World) -> None:
    folder = world.data_dir / "spawns"
    with mounted(["-t", "tmpfs", "-o", "size=64k", "none", str(folder)], folder):
        view = await world.spawn_loaded()
        record = DeadAgent(world=world, pid=view.pid).record
        await world.until(lambda: LOAD_NOTED in record.read_text(), "it is noted")

        record.unlink()
        fill(folder / "somebody-else")
        await world.until(lambda: world.backends.custody.problems != (), "it is told")
        (problem,) = world.backends.custody.problems
        assert problem == (
            f"x, pid {view.pid}: cannot write its record: no space left on device; free some in "
            f"{folder}; the next agent would not know it as it is"
        )
        assert world.view(view).loaded_at is not None

        (folder / "somebody-else").unlink()
        await world.until(lambda: world.backends.custody.problems == (), "it is well again")
        assert record.exists()
        await world.stop(view)


async def test_what_stands_in_the_way_of_a_record_is_told_until_it_is_gone(world: World) -> None:
    view = await world.spawn_loaded()
    record = DeadAgent(world=world, pid=view.pid).record

    record.unlink()
    record.mkdir()
    await world.until(lambda: world.backends.custody.problems != (), "it is told")
    (problem,) = world.backends.custody.problems
    assert f"is a directory; take away what stands in the way at {record.parent}" in problem

    record.rmdir()
    await world.until(lambda: world.backends.custody.problems == (), "it is well again")
    assert record.is_file()
    await world.stop(view)


async def test_where_the_folder_is_not_ours_nothing_is_written_or_started(world: World) -> None:
    view = await world.spawn_loaded()
    record = DeadAgent(world=world, pid=view.pid).record

    world.not_held = "data folder /d was replaced"
    await world.until(lambda: world.backends.custody.problems == (world.not_held,), "it is told")
    record.unlink()  # no look from before is under way any more
    with pytest.raises(Transient, match="cannot start x: data folder /d was replaced"):
        await world.spawn(argv=SLEEP)
    assert world.records() == []
    assert world.view(view).loaded_at is not None

    world.not_held = None
    assert (await rewritten(world)).pid == view.pid
    assert world.backends.custody.problems == ()
    await world.stop(view)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def rewritten(world: World) -> RecordRewritten:
    found: list[RecordRewritten] = []

    def told() -> bool:
        found.extend(world.backends.custody.take_rewritten())
        return bool(found)

    await world.until(told, "it is told")
    (each,) = found
    return each
