"""The source that follows a repository: when it looks, and what it says while it cannot."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from shutil import which

import pytest

from reconciler.source.git import GitSource
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import parse_address
from reconciler.source.snapshot import Snapshot
from tests.source.git_repository import Repository

NEVER = 3600.0
SourceOf = Callable[[float], GitSource]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(root=tmp_path / "remote")


@pytest.fixture
def source_of(tmp_path: Path, repository: Repository) -> SourceOf:
    def make(interval_seconds: float) -> GitSource:
        return GitSource(
            parse_address(repository.url("ref=main&path=m")),
            GitAccess(search_path=os.environ["PATH"], timeout_seconds=30),
            tmp_path / "scratch",
            interval_seconds=interval_seconds,
            now=lambda: "2026-01-02T03:04:05Z",
        )

    return make


@asynccontextmanager
async def reading(source: GitSource) -> AsyncIterator[AsyncIterator[Snapshot]]:
    async with asyncio.timeout(60), aclosing(source.snapshots()) as snapshots:
        yield snapshots


def texts(snapshot: Snapshot) -> list[str]:
    assert snapshot.error is None
    return [(file.content or b"?").decode() for file in snapshot.files]


async def test_sees_pushes_by_itself(repository: Repository, source_of: SourceOf) -> None:
    repository.push({"m/a.yaml": "1"})
    async with reading(source_of(0.05)) as snapshots:
        assert texts(await anext(snapshots)) == ["1"]
        for number in "23":
            repository.push({"m/a.yaml": number})
            assert texts(await anext(snapshots)) == [number]


async def test_looks_at_once_when_asked(repository: Repository, source_of: SourceOf) -> None:
    repository.push({"m/a.yaml": "1"})
    source = source_of(NEVER)
    async with reading(source) as snapshots:
        assert texts(await anext(snapshots)) == ["1"]
        repository.push({"m/a.yaml": "2"})
        asked = source.look_again()
        assert texts(await anext(snapshots)) == ["2"]
        coming = asyncio.ensure_future(anext(snapshots))
        await asked.wait()
        unchanged = source.look_again()
        await unchanged.wait()
        assert not coming.done()
        coming.cancel()
        await asyncio.wait([coming])


async def test_says_since_when_it_is_away_and_comes_back_by_itself(
    repository: Repository, source_of: SourceOf
) -> None:
    commit = repository.push({"m/a.yaml": "1"})
    source = source_of(0.05)
    async with reading(source) as snapshots:
        first = await anext(snapshots)
        away = repository.bare.rename(repository.root / "away")
        lost = await anext(snapshots)
        assert lost.error is not None
        assert lost.error.endswith("; it was reached last at 2026-01-02T03:04:05Z")
        assert (lost.files, lost.revision) == ((), commit)
        away.rename(repository.bare)
        assert await anext(snapshots) == first


async def test_says_that_it_was_never_reached(repository: Repository, source_of: SourceOf) -> None:
    repository.bare.rename(repository.root / "away")
    error = (await source_of(NEVER).read()).error
    assert error is not None
    assert "not reached since the agent started" in error


async def test_asks_later_and_later_while_it_is_away(
    repository: Repository, source_of: SourceOf
) -> None:
    away = repository.bare.rename(repository.root / "away")
    source = source_of(40)
    pauses = []
    for _ in range(7):
        await source.read()
        pauses.append(source.pause_seconds())
    for pause, about in zip(pauses, (40, 80, 160, 300, 300, 300, 300), strict=True):
        assert 0.9 * about <= pause <= 1.1 * about
    away.rename(repository.bare)
    await source.read()
    assert source.pause_seconds() <= 44


async def test_does_not_wait_longer_for_a_push_that_mends_a_ref(
    repository: Repository, source_of: SourceOf
) -> None:
    """The repository answers, so that asking costs little."""
    source = source_of(40)
    for _ in range(5):
        await source.read()
    assert source.pause_seconds() <= 44


async def test_says_soon_that_a_host_is_silent_and_goes_on_asking(
    repository: Repository, tmp_path: Path
) -> None:
    """Until something is said, the last good version is not in force after a start."""
    repository.push({"m/a.yaml": "1"})
    hangs, git = tmp_path / "hangs", tmp_path / "bin" / "git"
    hangs.touch()
    git.parent.mkdir()
    git.write_text(f'#!/bin/sh\ntest ! -e {hangs} || exec sleep 600\nexec {which("git")} "$@"\n')
    git.chmod(0o755)
    source = GitSource(
        parse_address(repository.url("ref=main&path=m")),
        GitAccess(search_path=f"{git.parent}:{os.environ['PATH']}", timeout_seconds=2),
        tmp_path / "scratch",
        interval_seconds=0.05,
        patience_seconds=0.05,
        now=lambda: "now",
    )
    async with reading(source) as snapshots:
        assert "it has not answered yet" in str((await anext(snapshots)).error)
        assert "git ls-remote took longer than 2 s" in str((await anext(snapshots)).error)
        hangs.unlink()
        assert texts(await anext(snapshots)) == ["1"]


async def test_ends_at_once_while_a_host_is_silent(repository: Repository, tmp_path: Path) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nexec sleep 600\n")
    git.chmod(0o755)
    source = GitSource(
        parse_address(repository.url()),
        GitAccess(search_path=f"{git.parent}:{os.environ['PATH']}", timeout_seconds=600),
        tmp_path / "scratch",
        patience_seconds=0.05,
        now=lambda: "now",
    )
    async with reading(source) as snapshots:
        await anext(snapshots)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
