"""What a backend is born with: its group above all, and nothing of who put it there."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reconciler.apply.cgroup import leave, members
from reconciler.apply.execute import execute

BIRTHS = 40
"""Of programs that ask for their group at once: one in a few does so before anybody could move it
from outside."""
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C", "EMPTY": "", "ODD": "a=b\nc \udcff"}


@pytest.fixture
def group(ours: Path) -> Iterator[Path]:
    made = ours / f"xgen-test-{os.getpid()}"
    yield made
    leave(made)
    assert not made.exists()


def run(argv: Sequence[str], log: Path, group: Path | None) -> int:
    """The pid; it has ended."""
    with log.open("ab") as file:
        child = execute(argv, ENVIRONMENT, file.fileno(), group)
    child.wait()
    assert child.returncode == 0, log.read_text()
    return child.pid


def test_it_is_born_in_its_group(group: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(BIRTHS):
        run(("cat", "/proc/self/cgroup"), log, group)

    told = [line for line in log.read_text().splitlines() if line.startswith("0::")]
    assert [Path(line).name for line in told] == [group.name] * BIRTHS


def test_all_else_is_as_without_a_group(group: Path, tmp_path: Path) -> None:
    there = "cat /proc/$$/environ /proc/$$/cmdline; ls /proc/$$/fd"
    script = f"{there}; exec grep ^Sig[BIC] /proc/self/status"
    found = []
    for name, where in (("with", group), ("without", None)):
        log = tmp_path / name
        run(("sh", "-c", script), log, where)
        found.append(log.read_bytes())

    assert found[0] == found[1]
    assert found[0].startswith(b"PATH=")


def test_it_leads_a_session_under_the_pid_that_is_told(group: Path, tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        child = execute(("sleep", "3600"), ENVIRONMENT, log.fileno(), group)

    assert os.getsid(child.pid) == child.pid
    assert members(group) == {child.pid}
    assert Path(f"/proc/{child.pid}/cmdline").read_bytes() == b"sleep\x003600\x00"
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


@pytest.mark.parametrize("grouped", [True, False])
def test_what_exec_refuses_is_told_as_it_refuses_it(
    group: Path, tmp_path: Path, grouped: bool
) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    where = group if grouped else None
    for argv, error in (
        ((str(tmp_path / "missing"),), FileNotFoundError),
        (("no-such-program-anywhere",), FileNotFoundError),
        ((str(plain),), PermissionError),
        (("cat", "\0"), ValueError),
    ):
        with (tmp_path / "log").open("ab") as log, pytest.raises(error):
            execute(argv, ENVIRONMENT, log.fileno(), where)
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("instead", ["/missing/python", "/bin/false"])
def test_without_an_interpreter_of_ours_it_is_moved_there(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    """As while the agent is being upgraded."""
    monkeypatch.setattr(sys, "executable", instead)
    with (tmp_path / "log").open("ab") as log:
        child = execute(("sleep", "3600"), ENVIRONMENT, log.fileno(), group)

    assert members(group) == {child.pid}
    child.kill()
    child.wait()


def test_a_group_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    run(("true",), tmp_path / "log", tmp_path / "missing" / "group")
