"""What gives a hint at once, what gives none, and how many there are of many changes."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reconciler.source.watching import PAUSE_SECONDS, Watcher, folders_to_watch
from tests.source.atomic_writer import ConfigMapVolume


class Watched:
    """A folder that is followed, and how many hints there were so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hint = asyncio.Event()
        self.watcher = Watcher(self.hint)

    async def follow(self) -> None:
        await self.watcher.follow(folders_to_watch(self.folder))
        assert self.watcher.failure is None

    async def hinted(self) -> None:
        async with asyncio.timeout(10):
            await self.hint.wait()
        self.hint.clear()


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    folder = tmp_path / "manifests"
    folder.mkdir()
    made = Watched(folder)
    await made.follow()
    yield made
    await made.watcher.close()


async def test_a_file_that_is_saved(watched: Watched) -> None:
    fresh = watched.folder / ".models.yaml.swp"
    fresh.write_text("1")
    fresh.rename(watched.folder / "models.yaml")
    await watched.hinted()


async def test_a_file_that_may_be_read_from_now_on(watched: Watched) -> None:
    file = watched.folder / "models.yaml"
    file.write_text("1")
    await watched.hinted()
    file.chmod(0o600)
    await watched.hinted()


async def test_a_mount_that_is_swapped(watched: Watched) -> None:
    volume = ConfigMapVolume(watched.folder)
    for text in "123":
        volume.write({"models.yaml": text})
        await watched.hinted()
        await watched.follow()


async def test_what_is_no_manifest_gives_no_hint(watched: Watched) -> None:
    for name in ("notes.txt", ".models.yaml.swp", "agent.log"):
        (watched.folder / name).write_text("x")
    (watched.folder / "below.yaml.d").mkdir()
    assert not watched.hint.is_set()
    (watched.folder / "last.yaml").touch()
    await watched.hinted()


async def test_a_folder_that_goes_and_comes_again_is_followed_again(watched: Watched) -> None:
    watched.folder.rename(watched.folder.with_name("old"))
    await watched.hinted()
    watched.folder.mkdir()
    await watched.follow()
    (watched.folder / "models.yaml").write_text("1")
    await watched.hinted()


async def test_what_has_just_moved_is_told_though_other_folders_are_followed_by_now(
    watched: Watched,
) -> None:
    """The watch stays while its folders change: to end one takes the kernel up to 20 ms."""
    other = watched.folder.with_name("other")
    other.mkdir()
    (watched.folder / "models.yaml").touch()
    await watched.watcher.follow({str(watched.folder): None, str(other): None})
    await watched.hinted()


async def test_a_folder_that_is_followed_no_more_gives_no_hint(watched: Watched) -> None:
    other = watched.folder.with_name("other")
    other.mkdir()
    await watched.watcher.follow({str(other): None})
    (watched.folder / "models.yaml").touch()
    (watched.folder / "models.yaml").unlink()
    await asyncio.sleep(0)
    assert not watched.hint.is_set()
    (other / "models.yaml").touch()
    await watched.hinted()


async def test_a_file_that_is_written_all_the_time_gives_few_hints(watched: Watched) -> None:
    """Each of them is a read of the whole folder."""
    hints = 0
    began = asyncio.get_running_loop().time()
    with (watched.folder / "models.yaml").open("w") as file:
        for _ in range(2000):
            file.write("x")
            file.flush()
            await asyncio.sleep(0)
            hints += watched.hint.is_set()
            watched.hint.clear()
    spent = asyncio.get_running_loop().time() - began
    assert 1 <= hints <= spent / PAUSE_SECONDS + 1


async def test_what_is_closed_hints_no_more_and_leaves_no_file_open(watched: Watched) -> None:
    before = len(os.listdir("/proc/self/fd"))
    await watched.watcher.close()
    (watched.folder / "models.yaml").touch()
    await asyncio.sleep(0)
    assert not watched.hint.is_set()
    assert len(os.listdir("/proc/self/fd")) == before - 1


async def test_a_folder_that_is_gone_by_now_is_a_failure(tmp_path: Path) -> None:
    watcher = Watcher(asyncio.Event())
    await watcher.follow({str(tmp_path / "gone"): None})
    assert watcher.failure == "no such file or directory"


async def test_a_watch_that_failed_begins_anew(watched: Watched) -> None:
    before = len(os.listdir("/proc/self/fd"))
    await watched.watcher.follow({str(watched.folder / "gone"): None})
    assert watched.watcher.failure == "no such file or directory"
    assert len(os.listdir("/proc/self/fd")) == before - 1
    await watched.follow()
    (watched.folder / "models.yaml").touch()
    await watched.hinted()
