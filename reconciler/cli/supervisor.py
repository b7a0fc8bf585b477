"""The parent of `run --supervise`: reaps, forwards signals, starts a crashed agent anew.

A program of its own, which `supervise.py` puts in the command's place. It imports nothing of ours
and little else, so that it stays small and has nothing to crash of.

    python -S -P supervisor.py FORM LEVEL ON_EXIT COMMAND…

The agent gets two pipes. One tells it that we are gone, by its end; on the other it says UP once
it answers, and ENDED once it has ended in order. Whatever else it dies of is a crash, and only
before the first UP is that the end of everything: a command that is wrong stays wrong.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator

VARIABLE = "XGEN_SUPERVISOR"
"""What the agent is told: `READ,WRITE,RESTARTS,CRASH`; the pipes by their numbers."""
UP = b"U"
ENDED = b"E"

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)

LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
"""A crash after so long a life is the first in a row again."""


class Log:
    """Lines as the agent writes them (log.py)."""

    def __init__(self, *, form: str, level: str) -> None:
        self._console = form == "console"
        self._quiet = level in ("warning", "error")

    def info(self, event: str, reason: str) -> None:
        if not self._quiet:
            self._write("info", event, reason)

    def error(self, event: str, reason: str) -> None:
        self._write("error", event, reason)

    def _write(self, level: str, event: str, reason: str) -> None:
        now = time.time()
        moment = _moment(now) + f"{now % 1:.6f}Z"[1:]
        if self._console:
            line = f"{moment} [{level:<9}] {event:<30} reason={reason!r}\n"
        else:
            fields = {"reason": reason, "event": event, "level": level, "timestamp": moment}
            said = ", ".join(f'"{key}": "{_escaped(text)}"' for key, text in fields.items())
            line = f"{{{said}}}\n"
        with contextlib.suppress(OSError):  # nobody reads it any more
            os.write(2, line.encode(errors="replace"))


class Agent:
    """One life of the agent. In a session of its own: Ctrl-C reaches it through us, and once.

    What we forward is blocked in it until its handlers are there: it dies of no early signal.
    """

    def __init__(self, command: list[str], *, restarts: int, crash: str) -> None:
        ours, theirs = os.pipe(), os.pipe()
        for end in (theirs[0], ours[1]):
            os.set_inheritable(end, True)
        told = f"{theirs[0]},{ours[1]},{restarts},{crash}"
        self._heard, self._kept = ours[0], theirs[1]
        self.began = time.monotonic()
        try:
            self.pid = os.posix_spawn(
                command[0],
                command,
                {**os.environ, VARIABLE: told},
                setsigmask=FORWARDED,
                setsid=True,
            )
        except OSError:
            self.close()
            raise
        finally:
            os.close(theirs[0])
            os.close(ours[1])

    def close(self) -> bytes:
        """After its death; what it has said."""
        os.set_blocking(self._heard, False)
        try:
            return os.read(self._heard, 64)
        except BlockingIOError:
            return b""
        finally:
            os.close(self._heard)
            os.close(self._kept)


class Death:
    """How one life ended. `code`: as a shell tells it. `how`: in words."""

    def __init__(self, *, code: int, said: bytes = b"", seconds: float = 0.0, how: str) -> None:
        self.code = code
        self.said = said
        self.seconds = seconds
        self.how = how


class Supervisor:
    """`stops`: whether backends are to end with their agent (`--on-exit`)."""

    def __init__(self, command: list[str], *, stops: bool, log: Log) -> None:
        self._command = command
        self._stops = stops
        self._log = log
        heeded = (each for each in FORWARDED if signal.getsignal(each) is not signal.SIG_IGN)
        self._watched = frozenset((*heeded, signal.SIGCHLD))
        self._asked: int | None = None
        """The signal that asked for the end."""

    def run(self) -> int:
        """Until an agent has ended in order, or the first one never came up: its exit code.

        One that crashes after it was told to end has a last successor, which ends the backends.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        restarts, in_a_row, crash = 0, 0, ""
        was_up = False
        while True:
            is_last = self._asked is not None
            death = self._live(restarts, crash)
            was_up = was_up or UP in death.said
            if ENDED in death.said or not was_up:
                return death.code
            if self._asked is not None and (is_last or not self._stops):
                self._log.error("agent crashed", f"{death.how}, while it was to end; {_left()}")
                return death.code or 1
            in_a_row = 1 if death.seconds >= HEALTHY_SECONDS else in_a_row + 1
            restarts, crash = restarts + 1, death.how
            pause = _pause(in_a_row)
            self._log.error("agent crashed", f"{crash}; {self._next(pause, in_a_row)}")
            self._rest(pause)
            if self._asked is not None and not self._stops:
                self._log.info("supervisor ended", f"no agent runs; {_left()}")
                return 0

    def _live(self, restarts: int, crash: str) -> Death:
        try:
            agent = Agent(self._command, restarts=restarts, crash=crash)
        except OSError as exc:
            how = f"it could not be started: {exc.strerror or exc}"
            self._log.error("agent not started", how)
            return Death(code=1, how=how)
        if self._asked is not None:
            os.kill(agent.pid, self._asked)
        code = os.waitstatus_to_exitcode(self._status_of(agent.pid))
        seconds = time.monotonic() - agent.began
        when = f"{_moment(time.time())}Z, {seconds:.0f} s after its start"
        how = f"exit code {code}" if code >= 0 else f"killed by {_name(-code)}"
        return Death(
            code=code if code >= 0 else 128 - code,
            said=agent.close(),
            seconds=seconds,
            how=f"{how} at {when} (pid {agent.pid})",
        )

    def _status_of(self, agent: int) -> int:
        """Forward signals and reap whoever comes to us, until the agent is dead."""
        while True:
            for pid, status in _dead():
                if pid == agent:
                    return status
            number = signal.sigwaitinfo(self._watched).si_signo
            if number != signal.SIGCHLD:
                self._note(number)
                os.kill(agent, number)

    def _rest(self, seconds: float) -> None:
        """Reap only, until the time is over or the end is asked for."""
        deadline = time.monotonic() + seconds
        while self._asked is None and (left := deadline - time.monotonic()) > 0:
            for _ in _dead():
                pass
            caught = signal.sigtimedwait(self._watched, left)
            if caught is not None:
                self._note(caught.si_signo)

    def _note(self, number: int) -> None:
        if number in ENDING:
            self._asked = number

    def _next(self, pause: float, in_a_row: int) -> str:
        if self._asked is not None:
            return "it was to end, so one more is started, which ends its backends"
        when = f"in {pause:.0f} s" if pause else "now"
        counted = f"; {in_a_row} crashes in a row" if in_a_row > 1 else ""
        return f"its backends live on, and a new one is started {when}{counted}"


def _dead() -> Iterator[tuple[int, int]]:
    """Reap every child that is dead: the agent, and orphans of whomever."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _pause(in_a_row: int) -> float:
    """The first crash costs no time."""
    if in_a_row == 1:
        return 0.0
    return min(2.0 ** (in_a_row - 2), LONGEST_PAUSE_SECONDS)


def _left() -> str:
    """Pid 1 takes all others of its namespace along."""
    return "nothing is left" if os.getpid() == 1 else "the backends that it had are left running"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _escaped(text: str) -> str:
    plain: Iterable[str] = (each if each.isprintable() else "?" for each in text)
    return "".join(plain).replace("\\", "\\\\").replace('"', '\\"')


def main(arguments: list[str]) -> int:
    form, level, on_exit, *command = arguments
    return Supervisor(command, stops=on_exit == "stop", log=Log(form=form, level=level)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
