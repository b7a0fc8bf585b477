"""What `doctor` says of an agent that holds its data folder, and does not answer."""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli.checks.agent import agent_findings
from reconciler.cli.checks.data_folder import lock_holder
from reconciler.cli.checks.finding import Finding, Level

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """We hold it, as an agent does."""
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path


def found(folder: Path) -> Finding:
    (finding,) = agent_findings(None, folder, holder=lock_holder(folder))
    return finding


def names(folder: Path, pid: int) -> None:
    (folder / "agent.json").write_text(json.dumps({"url": NOBODY, "pid": pid}), encoding="utf-8")


def test_one_that_holds_the_folder_and_does_not_answer_fails(folder: Path) -> None:
    names(folder, os.getpid())

    finding = found(folder)

    assert finding.level is Level.FAIL
    assert finding.said.startswith(f"cannot reach an agent at {NOBODY}: ")
    assert f"grep State /proc/{os.getpid()}/status" in str(finding.next)


@pytest.mark.parametrize("other", [None, 2**22 + 1])
def test_one_that_has_not_told_yet_where_it_answers_is_a_warning(
    folder: Path, other: int | None
) -> None:
    if other is not None:
        names(folder, other)

    finding = found(folder)

    assert finding.level is Level.WARN
    assert finding.said.startswith(f"pid {os.getpid()} holds the data folder, and ")


def test_where_nobody_holds_the_folder_one_that_is_gone_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    names(tmp_path, 2**22 + 1)

    assert found(tmp_path).level is Level.WARN
