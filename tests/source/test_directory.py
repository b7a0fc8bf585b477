"""Watching: every way in which people and machines replace a manifest is noticed."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from reconciler.source.directory import DirectorySource
from reconciler.source.snapshot import Snapshot
from reconciler.source.watching import Watcher, folders_to_watch
from tests.source.atomic_writer import ConfigMapVolume, GitSyncLink


@pytest.fixture(params=["watched", "polled"])
def source_at(request: pytest.FixtureRequest) -> Callable[[Path], DirectorySource]:
    """Real inotify with a poll that never comes, and a poll without inotify."""
    watch = request.param == "watched"

    def build(path: Path) -> DirectorySource:
        poll = 600.0 if watch else 0.05
        return DirectorySource(path, poll_seconds=poll, settle_seconds=0.02, watch=watch)

    return build


class Reader:
    """Takes snapshots one by one, each within a deadline."""

    def __init__(self, snapshots: AsyncIterator[Snapshot]) -> None:
        self._snapshots = snapshots

    async def next(self) -> Snapshot:
        async with asyncio.timeout(10):
            return await anext(self._snapshots)

    async def until(self, accept: Callable[[Snapshot], bool]) -> Snapshot:
        while not accept(snapshot := await self.next()):
            pass
        return snapshot


@asynccontextmanager
async def reading(source: DirectorySource) -> AsyncIterator[Reader]:
    async with aclosing(source.snapshots()) as snapshots:
        yield Reader(snapshots)


def text(snapshot: Snapshot) -> dict[str, str]:
    return {file.name: (file.content or b"?").decode() for file in snapshot.files}


Build = Callable[[Path], DirectorySource]


async def test_sees_every_swap_of_a_config_map(tmp_path: Path, source_at: Build) -> None:
    """llama-swap PR#217 (scenario 38): a watch on the file itself goes blind after one swap."""
    volume = ConfigMapVolume(tmp_path)
    volume.write({"a.yaml": "1"})
    async with reading(source_at(tmp_path)) as reader:
        assert text(await reader.next()) == {"a.yaml": "1"}
        for number in "234":
            volume.write({"a.yaml": number, "b.yaml": number})
            assert text(await reader.next()) == {"a.yaml": number, "b.yaml": number}


async def test_sees_swaps_under_one_file_of_a_config_map(tmp_path: Path, source_at: Build) -> None:
    """llama-swap#671 (scenario 38): the manifest is a file that is a link through `..data`."""
    volume = ConfigMapVolume(tmp_path)
    volume.write({"a.yaml": "1"})
    async with reading(source_at(tmp_path / "a.yaml")) as reader:
        await reader.next()
        for number in "23":
            volume.write({"a.yaml": number})
            assert text(await reader.next()) == {str(tmp_path / "a.yaml"): number}


@pytest.mark.parametrize("below", ["", "prod"])
async def test_sees_swaps_of_a_git_sync_link(tmp_path: Path, source_at: Build, below: str) -> None:
    link = GitSyncLink(tmp_path)
    prefix = f"{below}/" if below else ""

    def write(number: str) -> None:
        worktree = tmp_path / ".worktrees" / f"{int(number):040x}"
        (worktree / below).mkdir(parents=True)
        (worktree / prefix / "a.yaml").write_text(number)
        temporary = tmp_path / "new"
        temporary.symlink_to(worktree)
        os.replace(temporary, link.link)

    write("1")
    async with reading(source_at(link.link / below)) as reader:
        await reader.next()
        for number in "23":
            write(number)
            assert text(await reader.next()) == {"a.yaml": number}


async def test_sees_rename_on_save(tmp_path: Path, source_at: Build) -> None:
    manifest = tmp_path / "a.yaml"
    manifest.write_text("1")
    async with reading(source_at(tmp_path)) as reader:
        await reader.next()
        for number in "23":
            (tmp_path / ".a.yaml.swp").write_text(number)
            os.rename(manifest, tmp_path / "a.yaml~")
            os.rename(tmp_path / ".a.yaml.swp", manifest)
            assert text(await reader.until(lambda it: text(it) != {})) == {"a.yaml": number}


async def test_sees_a_change_behind_a_linked_file(tmp_path: Path, source_at: Build) -> None:
    """llama-swap#671 (scenario 38)."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    (tmp_path / "real.yaml").write_text("1")
    (folder / "a.yaml").symlink_to("../real.yaml")
    async with reading(source_at(folder)) as reader:
        await reader.next()
        for number in "23":
            (tmp_path / "new").write_text(number)
            os.replace(tmp_path / "new", tmp_path / "real.yaml")
            assert text(await reader.next()) == {"a.yaml": number}


async def test_a_directory_that_vanishes_is_an_error_until_it_is_back(
    tmp_path: Path, source_at: Build
) -> None:
    """argo-cd#2573 (scenario 40), and it is picked up again."""
    folder = tmp_path / "deep" / "manifests"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text("1")
    async with reading(source_at(folder)) as reader:
        await reader.next()
        shutil.rmtree(tmp_path / "deep")
        gone = await reader.until(lambda it: it.error is not None)
        assert gone.files == ()
        folder.mkdir(parents=True)
        (folder / "a.yaml").write_text("2")
        back = await reader.until(lambda it: text(it) != {})
        assert text(back) == {"a.yaml": "2"}


async def test_waits_for_a_path_that_is_not_there_yet(tmp_path: Path, source_at: Build) -> None:
    async with reading(source_at(tmp_path / "later" / "a.yaml")) as reader:
        assert (await reader.next()).error is not None
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "a.yaml").write_text("1")
        await reader.until(lambda it: list(text(it).values()) == ["1"])


async def test_an_emptied_config_map_is_a_complete_listing(
    tmp_path: Path, source_at: Build
) -> None:
    """argo-cd#3996, #10987 (scenario 41): told apart from a source that is down; R2 decides."""
    volume = ConfigMapVolume(tmp_path)
    volume.write({"a.yaml": "1"})
    async with reading(source_at(tmp_path)) as reader:
        await reader.next()
        volume.write({})
        empty = await reader.next()
        assert (empty.error, empty.files) == (None, ())


async def test_touching_a_file_is_no_new_snapshot(tmp_path: Path, source_at: Build) -> None:
    (tmp_path / "a.yaml").write_text("1")
    async with reading(source_at(tmp_path)) as reader:
        await reader.next()
        os.utime(tmp_path / "a.yaml")
        (tmp_path / "a.yaml").write_text("1")
        (tmp_path / "b.yaml").write_text("2")
        assert text(await reader.next()) == {"a.yaml": "1", "b.yaml": "2"}


async def test_a_file_that_goes_on_changing_does_not_count(tmp_path: Path) -> None:
    stop = threading.Event()
    written = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (tmp_path / "busy.yaml").write_text(f"models: {number}")
            written.set()

    (tmp_path / "calm.yaml").write_text("calm")
    thread = threading.Thread(target=write)
    thread.start()
    try:
        await asyncio.to_thread(written.wait)
        source = DirectorySource(tmp_path, settle_seconds=0.1)
        busy, calm = (await source.read()).files
    finally:
        stop.set()
        thread.join()

    assert busy.error == "cannot read busy.yaml: it is still being written"
    assert calm.content == b"calm"


async def test_a_plain_file_counts_when_two_reads_agree_and_a_swap_at_once(tmp_path: Path) -> None:
    """With an hour between two reads, only what needs one read can be seen."""
    volume = ConfigMapVolume(tmp_path / "volume")
    volume.write({"a.yaml": "1"})
    slow = DirectorySource(volume.folder, settle_seconds=3600)
    assert text(await slow.read()) == {"a.yaml": "1"}

    (tmp_path / "plain").mkdir()
    plain = DirectorySource(tmp_path / "plain", settle_seconds=3600)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await plain.read()


async def test_what_an_earlier_agent_took_up_counts_at_once(tmp_path: Path) -> None:
    """With an hour between two reads, as above."""
    taken_up = {"a.yaml": b"1", "b.yaml": b"2"}
    for name, content in taken_up.items():
        (tmp_path / name).write_bytes(content)
    the_same = DirectorySource(tmp_path, settle_seconds=3600, settled=taken_up)
    assert text(await the_same.read()) == {"a.yaml": "1", "b.yaml": "2"}

    (tmp_path / "b.yaml").write_bytes(b"")
    another = DirectorySource(tmp_path, settle_seconds=3600, settled=taken_up)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await another.read()


async def test_a_look_that_is_asked_for_ends_when_its_read_was_handed_over(tmp_path: Path) -> None:
    source = DirectorySource(tmp_path, poll_seconds=600.0, settle_seconds=0.02, watch=False)
    seen: list[dict[str, str]] = []

    async def follow() -> None:
        async with aclosing(source.snapshots()) as snapshots:
            async for snapshot in snapshots:
                seen.append(text(snapshot))

    following = asyncio.create_task(follow())
    for number in "12":
        (tmp_path / "a.yaml").write_text(number)
        async with asyncio.timeout(10):
            await source.look_again().wait()
        assert seen[-1] == {"a.yaml": number}
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_cancelled_reader_leaves_nothing_running(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("1")
    started = asyncio.Event()

    async def consume() -> None:
        async with reading(DirectorySource(tmp_path, settle_seconds=0.01)) as reader:
            while True:
                await reader.next()
                started.set()

    task = asyncio.create_task(consume())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_folder_that_cannot_be_watched_is_a_failure_not_an_exception(
    tmp_path: Path,
) -> None:
    watcher = Watcher(asyncio.Event())
    await watcher.follow({str(tmp_path / "gone"): None})
    await watcher.close()

    assert watcher.failure is not None


NO_INOTIFY = """
import asyncio, pathlib, sys
from contextlib import aclosing
from reconciler.source.directory import DirectorySource
folder = pathlib.Path(sys.argv[1])
source = DirectorySource(folder, poll_seconds=0.05, settle_seconds=0.01)
async def main():
    async with aclosing(source.snapshots()) as snapshots:
        await anext(snapshots)
        (folder / "b.yaml").write_text("2")
        second = await anext(snapshots)
    print([file.name for file in second.files])
    print(*source.notices)
asyncio.run(main())
"""


INOTIFY_AGAIN = """
import asyncio, pathlib, sys
from contextlib import aclosing
from reconciler.source.directory import DirectorySource
folder = pathlib.Path(sys.argv[1])
source = DirectorySource(folder, poll_seconds=0.05, settle_seconds=0.01)
async def main():
    async with aclosing(source.snapshots()) as snapshots:
        first = await anext(snapshots)
        print(*source.notices)
        pathlib.Path("/proc/sys/user/max_inotify_instances").write_text("128")
        async with asyncio.timeout(20):
            second = await anext(snapshots)
    print(second is first, source.notices)
asyncio.run(main())
"""


def run_without_inotify(program: str, folder: Path) -> list[str]:
    """The lines that it prints, in a user namespace that allows no inotify instance."""
    limit = "echo 0 > /proc/sys/user/max_inotify_instances"
    inside = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*inside, limit], check=False).returncode:
        pytest.skip("no user namespace with a limit of its own")
    argv = [*inside, f'{limit} && exec "$@"', "sh", sys.executable, "-c", program, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_watch_that_works_again_takes_its_notice_back(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("1")

    notice, end = run_without_inotify(INOTIFY_AGAIN, tmp_path)[-2:]

    assert notice.startswith(f"cannot watch {tmp_path}: ")
    assert end == "True ()"


def test_polls_and_says_so_where_inotify_is_used_up(tmp_path: Path) -> None:
    """A node's 128 inotify instances are easily used up by others."""
    (tmp_path / "a.yaml").write_text("1")

    names, notice = run_without_inotify(NO_INOTIFY, tmp_path)[-2:]

    assert names == "['a.yaml', 'b.yaml']"
    assert notice.startswith(f"cannot watch {tmp_path}: ")
    assert notice.endswith("reading it every 0.05 s")


def test_watches_the_parents_of_links_and_only_their_names(tmp_path: Path) -> None:
    worktree = tmp_path / "worktrees" / "1"
    worktree.mkdir(parents=True)
    (tmp_path / "current").symlink_to("worktrees/1")

    assert folders_to_watch(tmp_path / "current") == {
        str(tmp_path): frozenset({"current"}),
        str(tmp_path / "worktrees"): frozenset({"1"}),
        str(worktree): None,
    }
