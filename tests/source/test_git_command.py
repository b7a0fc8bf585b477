"""A git that hangs, floods or starts helpers: all of it ends in time, and nothing is left."""

import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.source.git_command import GitCommand, GitFailed, GitTookTooLong
from tests.waiting import wait_until

StandIn = Callable[..., GitCommand]


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """A `git` that is a script, with the time that it gets."""

    def make(script: str, *, seconds: float = 30) -> GitCommand:
        path = tmp_path / "bin" / "git"
        path.parent.mkdir()
        path.write_text(f"#!{sys.executable}\nimport os, subprocess, sys, time\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        search = f"{path.parent}:{os.environ['PATH']}"
        return GitCommand(
            {"PATH": search, "MARK": str(tmp_path)}, timeout_seconds=seconds, max_file_bytes=1 << 20
        )

    return make


HELPER = "subprocess.Popen(['sleep', '600'])"


def left(tmp_path: Path) -> list[int]:
    """Living processes that were started for this test."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_ours = f"MARK={tmp_path}".encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if is_ours and ") Z" not in (entry / "stat").read_text():
            found.append(int(entry.name))
    return found


def nothing_left(tmp_path: Path) -> None:
    wait_until(lambda: not left(tmp_path), what="all killed")


def test_gives_what_is_printed_and_passes_words_and_input(
    stand_in: StandIn, tmp_path: Path
) -> None:
    git = stand_in("print(sys.argv[1:], sys.stdin.read(), os.getcwd())")
    out = git.run("verb", "-x", folder=tmp_path, config=("-c", "a=b"), stdin=b"in" * 100_000)
    assert out.startswith(b"['-c', 'a=b', 'verb', '-x'] inin")
    assert out.endswith(f"in {tmp_path}\n".encode())


def test_tells_what_was_said_of_a_failure(stand_in: StandIn, tmp_path: Path) -> None:
    git = stand_in("print('noise' * 100_000, file=sys.stderr); sys.exit('fatal: why')")
    with pytest.raises(GitFailed, match="git fetch ended with exit code 1") as caught:
        git.run("fetch", folder=tmp_path)
    assert caught.value.said.endswith("fatal: why\n")
    assert len(caught.value.said) < 20_000


@pytest.mark.parametrize("hangs", ["time.sleep(600)", "sys.exit(0)"], ids=["git", "helper"])
def test_kills_git_and_its_helpers_when_the_time_is_over(
    stand_in: StandIn, tmp_path: Path, hangs: str
) -> None:
    """The helper of the second one holds the pipe open after git has ended."""
    git = stand_in(f"{HELPER}; {hangs}", seconds=0.5)
    with pytest.raises(GitTookTooLong, match=r"git fetch took longer than 0\.5 s"):
        git.run("fetch", folder=tmp_path)
    nothing_left(tmp_path)


def test_kills_a_git_that_floods(stand_in: StandIn, tmp_path: Path) -> None:
    git = stand_in(f"{HELPER}\nwhile True: os.write(1, b'x' * 65536)")
    with pytest.raises(GitFailed, match="printed more than 1000000 bytes"):
        git.run("cat-file", folder=tmp_path, max_bytes=1_000_000)
    nothing_left(tmp_path)


def test_close_ends_what_runs_and_starts_nothing_more(stand_in: StandIn, tmp_path: Path) -> None:
    git = stand_in(f"{HELPER}; time.sleep(600)")
    failures: list[GitFailed] = []

    def run() -> None:
        with pytest.raises(GitFailed) as caught:
            git.run("fetch", folder=tmp_path)
        failures.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: len(left(tmp_path)) == 2, what="git and its helper")
    git.close()
    thread.join(30)
    assert failures
    nothing_left(tmp_path)
    with pytest.raises(GitFailed, match="the agent ends"):
        git.run("fetch", folder=tmp_path)
