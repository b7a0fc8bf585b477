"""The demo of a cluster: real agents, a real model; and that nothing of it stays behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from reconciler.observe.processes import read_processes
from tests.e2e.agent import REPOSITORY
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: the model in it is large."""
    return tmp_path_factory.mktemp("demo")


@contextmanager
def _demo(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Two nodes at a port that is taken on the second one's address."""
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        other.listen()
        port = str(other.getsockname()[1])
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "reconciler", "demo", "--nodes", "2"),
                *("--folder", str(folder), "--port", port, *words),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=REPOSITORY,
        )
        assert process.stdout is not None
        try:
            with process.stdout as lines:
                yield process, lines
        finally:
            process.terminate()
            process.wait(60)
    assert _left(folder) == []


def _left(folder: Path) -> list[str]:
    """Agents and backends name the folder in their words."""
    return [
        str(process)
        for process in read_processes().values()
        if process.alive and str(folder) in _words(process.pid)
    ]


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
    except OSError:
        return ""


def _read_until(lines: IO[str], text: str) -> str:
    for line in lines:
        if text in line:
            return line
    raise AssertionError(f"the demo ended before it said {text!r}")


def test_any_node_answers_and_one_is_lost_and_comes_back(folder: Path) -> None:
    with _demo(folder, "--once") as (process, lines):
        said = lines.read()
        assert process.wait(60) == 0, said
    assert "(served by demo-b/gemma-demo-b)" in said
    assert "(served by demo-a/gemma-embed)" in said
    assert "all answered: 8 by demo-a\n" in said
    assert "503: cannot answer for model 'gemma-demo-b': node demo-b cannot be reached" in said
    assert said.count("Paris") == 4


def test_five_nodes_show_the_same(folder: Path) -> None:
    """Three of them embed: which one answers is up to the first."""
    with _demo(folder, "--once", "--nodes", "5") as (process, lines):
        said = lines.read()
        assert process.wait(60) == 0, said
    assert "all answered: 8 by demo-d\n" in said


def test_an_agent_that_dies_before_the_end_is_told_and_ends_the_demo(folder: Path) -> None:
    with _demo(folder, "--once") as (process, lines):
        pid = int(_read_until(lines, "demo-b listens").partition("(pid ")[2].partition(")")[0])
        os.kill(pid, signal.SIGKILL)
        said = lines.read()
        assert process.wait(60) == 1
    assert "demo-b has ended by itself, killed by SIGKILL" in said


def test_an_agent_that_is_killed_later_is_started_again(folder: Path) -> None:
    with _demo(folder) as (process, lines):
        pid = int(_read_until(lines, "a crash").partition("kill -9 ")[2].partition(":")[0])
        os.kill(pid, signal.SIGKILL)
        assert "demo-a has ended (killed by SIGKILL)" in _read_until(lines, "has ended")
        _read_until(lines, "demo-a is started again")
        process.send_signal(signal.SIGINT)
        lines.read()
        assert process.wait(60) == 0


def test_ctrl_c_ends_all_of_it(folder: Path) -> None:
    with _demo(folder) as (process, lines):
        _read_until(lines, "loading")
        process.send_signal(signal.SIGINT)
        lines.read()
        assert process.wait(60) == 0


def test_agents_end_when_the_demo_is_killed(folder: Path) -> None:
    with _demo(folder) as (process, lines):
        _read_until(lines, "loading")
        process.kill()
        process.wait(60)
        wait_until(lambda: _left(folder) == [], what="the agents have ended", seconds=60)
