"""The parent of `run --supervise`: what it forwards, reaps, starts anew and passes on."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

STAND_IN = Path(__file__).with_name("supervised_stand_in.py")
REPOSITORY = Path(__file__).resolve().parents[2]

ENDED_IN_ORDER, STUMBLED, REFUSED = 3, 7, 64


class Supervised:
    """A supervisor with agents that live as they are told (supervised_stand_in.py)."""

    def __init__(self, folder: Path, *lives: str, on_exit: str = "stop") -> None:
        self.journal = folder / "journal"
        self.errors = folder / "errors"
        self.journal.touch()
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(STAND_IN), str(self.journal), on_exit, *lives],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )

    @property
    def lines(self) -> list[str]:
        return self.journal.read_text(encoding="utf-8").splitlines()

    @property
    def lives(self) -> list[list[str]]:
        """Number, pid and how the one before died, of each agent."""
        return [line.split(maxsplit=3)[1:] for line in self.lines if line.startswith("life ")]

    @property
    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8")

    def wait_line(self, line: str, times: int = 1) -> None:
        wait_until(lambda: self.lines.count(line) >= times, what=f"{line} in {self.lines}")

    def wait_said(self, text: str) -> None:
        wait_until(lambda: text in self.said, what=f"{text}: {self.said}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def code(self) -> int:
        return self.process.wait(30)


Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    made: list[Supervised] = []

    def make(*lives: str, on_exit: str = "stop") -> Supervised:
        made.append(Supervised(tmp_path, *lives, on_exit=on_exit))
        return made[-1]

    yield make
    for supervised in made:
        if supervised.process.poll() is None:
            for _, pid, *_ in supervised.lives[-1:]:
                os.kill(int(pid), signal.SIGKILL)
            supervised.process.kill()
            supervised.process.wait()


def test_an_agent_that_never_came_up_ends_the_whole_with_its_exit_code(
    supervise: Supervise,
) -> None:
    supervised = supervise("refuse")
    assert supervised.code() == REFUSED
    assert len(supervised.lives) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_agent_and_its_exit_code_is_passed_on(
    supervise: Supervise, number: signal.Signals
) -> None:
    supervised = supervise("serve")
    supervised.wait_line("up")
    supervised.send(signal.SIGUSR1)
    supervised.wait_line("signal SIGUSR1")
    supervised.send(number)
    assert supervised.code() == ENDED_IN_ORDER
    assert supervised.lines[-1] == f"signal {number.name}"
    assert len(supervised.lives) == 1


def test_an_agent_that_somebody_ends_by_its_own_pid_is_not_started_anew(
    supervise: Supervise,
) -> None:
    supervised = supervise("serve")
    supervised.wait_line("up")
    os.kill(int(supervised.lives[0][1]), signal.SIGTERM)
    assert supervised.code() == ENDED_IN_ORDER


def test_a_signal_before_the_agent_can_hear_it_is_kept_for_it(supervise: Supervise) -> None:
    supervised = supervise("wait")
    wait_until(lambda: bool(supervised.lives), what="a first life")
    supervised.send(signal.SIGTERM)
    supervised.journal.with_suffix(".go").touch()
    assert supervised.code() == ENDED_IN_ORDER
    assert supervised.lines[-1] == "signal SIGTERM"


def test_a_crashed_agent_is_started_anew_and_told_why(supervise: Supervise) -> None:
    supervised = supervise("crash", "crash", "serve")
    supervised.wait_line("up", times=3)
    first, second, third = supervised.lives
    assert (first[0], len(first)) == ("0", 2)
    assert second[0] == "1"
    assert second[2].startswith("killed by SIGKILL at 2")
    assert second[2].endswith(f"(pid {first[1]})")
    assert third[0] == "2"
    assert "a new one is started now" in supervised.said
    assert "a new one is started in 1 s; 2 crashes in a row" in supervised.said
    supervised.send(signal.SIGTERM)
    assert supervised.code() == ENDED_IN_ORDER


def test_a_successor_that_does_not_come_up_is_a_crash_as_any(supervise: Supervise) -> None:
    supervised = supervise("crash", "refuse", "serve")
    supervised.wait_line("up", times=2)
    assert "exit code 64" in supervised.said
    supervised.send(signal.SIGTERM)
    assert supervised.code() == ENDED_IN_ORDER


def test_an_agent_that_crashes_at_its_end_has_one_successor_that_is_told_to_end(
    supervise: Supervise,
) -> None:
    """It is the one that finds the backends by their records, and stops them."""
    supervised = supervise("stumble", "serve")
    supervised.wait_line("up")
    supervised.send(signal.SIGTERM)
    assert supervised.code() == ENDED_IN_ORDER
    assert supervised.lines.count("signal SIGTERM") == 2
    assert len(supervised.lives) == 2


def test_a_successor_that_cannot_end_them_either_is_the_last(supervise: Supervise) -> None:
    supervised = supervise("stumble")
    supervised.wait_line("up")
    supervised.send(signal.SIGTERM)
    assert supervised.code() == STUMBLED
    assert len(supervised.lives) == 2
    assert "the backends that it had are left running" in supervised.said


@pytest.mark.parametrize(
    ("on_exit", "lives", "code"), [("stop", 3, 3), ("auto", 3, 3), ("leave", 2, 0)]
)
def test_a_signal_while_no_agent_runs(
    supervise: Supervise, on_exit: str, lives: int, code: int
) -> None:
    """To stop backends takes an agent; to leave them does not."""
    supervised = supervise("crash", "crash", "serve", on_exit=on_exit)
    supervised.wait_said("is started in 1 s")
    supervised.send(signal.SIGTERM)
    assert supervised.code() == code
    assert len(supervised.lives) == lives


def test_an_agent_that_leaves_its_backends_needs_no_successor_at_its_end(
    supervise: Supervise,
) -> None:
    supervised = supervise("stumble", on_exit="leave")
    supervised.wait_line("up")
    supervised.send(signal.SIGTERM)
    assert supervised.code() == STUMBLED
    assert len(supervised.lives) == 1


def test_orphans_are_reaped(supervise: Supervise) -> None:
    supervised = supervise("abandon")
    supervised.wait_line("up")
    agent = supervised.lives[0][1]
    wait_until(lambda: _children(supervised.process.pid) == [agent], what="only the agent is left")
    supervised.send(signal.SIGTERM)
    assert supervised.code() == ENDED_IN_ORDER


def test_ctrl_c_at_a_terminal_counts_once(tmp_path: Path) -> None:
    """The kernel signals the whole foreground group; the agent must not hear it twice."""
    journal = tmp_path / "journal"
    journal.touch()
    command = [sys.executable, str(STAND_IN), str(journal), "stop", "serve"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, {**os.environ, "PYTHONPATH": str(REPOSITORY)})
    try:
        wait_until(lambda: "up" in journal.read_text(encoding="utf-8"), what="up")
        os.write(terminal, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == ENDED_IN_ORDER
    finally:
        os.close(terminal)
    assert journal.read_text(encoding="utf-8").count("signal ") == 1


def test_it_is_small(supervise: Supervise) -> None:
    """Its own memory; the rest is the interpreter's file, shared with every agent."""
    supervised = supervise("serve")
    supervised.wait_line("up")
    status = Path(f"/proc/{supervised.process.pid}/status").read_text(encoding="utf-8")
    kibibytes = next(line.split()[1] for line in status.splitlines() if "RssAnon" in line)
    assert int(kibibytes) < 8 * 1024
    supervised.send(signal.SIGTERM)
    assert supervised.code() == ENDED_IN_ORDER


def _children(pid: int) -> list[str]:
    """Zombies included."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
