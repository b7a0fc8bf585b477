"""That a record is taken away is heard at once, whatever becomes of the folder."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from reconciler.apply.record_watch import RecordWatch
from reconciler.atomic_file import PARTIAL


class Heard:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times = 0
        self._now = asyncio.Event()
        self.watch = RecordWatch(folder, self._hear)

    def _hear(self) -> None:
        self.times += 1
        self._now.set()

    async def wait(self) -> None:
        async with asyncio.timeout(30):
            await self._now.wait()
        self._now.clear()

    def write(self, name: str = "a.json") -> Path:
        """As the agent does."""
        partial = self.folder / f"{name}{PARTIAL}"
        partial.write_text("{}")
        return partial.rename(self.folder / name)


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Heard]:
    made = Heard(tmp_path / "spawns")
    made.folder.mkdir()
    made.watch.open()
    yield made
    made.watch.close()


def _overwrite(record: Path) -> None:
    record.write_text("")


def _move(record: Path) -> None:
    record.rename(record.parent.with_name("elsewhere.json"))


@pytest.mark.parametrize("harm", [os.unlink, _overwrite, _move])
async def test_harm_is_heard(heard: Heard, harm: Callable[[Path], None]) -> None:
    record = heard.write()
    harm(record)
    await heard.wait()


async def test_our_own_writing_is_no_harm(heard: Heard) -> None:
    """Else each look would be followed by another one."""
    for _ in range(3):
        heard.write()
    (heard.folder / f"b.json{PARTIAL}").write_text("half")
    (heard.folder / f"b.json{PARTIAL}").unlink()
    (heard.folder / "a.json").unlink()
    await heard.wait()
    assert heard.times == 1


async def test_a_folder_that_is_removed_is_heard_and_the_next_one_is_watched(heard: Heard) -> None:
    shutil.rmtree(heard.folder)
    await heard.wait()
    heard.folder.mkdir()
    heard.watch.renew()
    heard.write().unlink()
    await heard.wait()


async def test_a_folder_that_takes_its_place_is_watched(heard: Heard) -> None:
    heard.folder.parent.joinpath("other").mkdir()
    heard.folder.rename(heard.folder.with_name("away"))
    heard.folder.with_name("other").rename(heard.folder)
    await heard.wait()
    heard.watch.renew()
    heard.write().unlink()
    await heard.wait()


async def test_without_a_folder_nothing_is_heard_and_nothing_breaks(tmp_path: Path) -> None:
    watch = RecordWatch(tmp_path / "none", lambda: None)
    watch.renew()
    watch.open()
    watch.renew()
    watch.close()
    watch.close()
