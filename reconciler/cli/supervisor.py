"""The parent of `run --supervise`: reaps, forwards signals, starts a crashed agent anew.

A program of its own, which `supervise.py` puts in the command's place. It imports nothing of ours
and little else, so that it stays small and has nothing to crash of.

    python -S -P supervisor.py FORM LEVEL ON_EXIT COMMAND…

The agent gets two pipes. On one it hears that it may begin, and that we are gone, by its end; on
the other it says UP once it answers, and ENDED once it has ended in order. Whatever else it dies of
is a crash, and only before the first UP is that the end of everything: a command that is wrong
stays wrong. A spare is started beside each, which imports all that an agent needs and then waits
for its word: what a crash costs is the taking over of the backends.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator

VARIABLE = "XGEN_SUPERVISOR"
"""What the agent is told: `READ,WRITE`; the pipes by their numbers. The line that lets it begin is
`RESTARTS,CRASH`."""
UP = b"U"
ENDED = b"E"

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)

LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
"""A crash after so long a life is the first in a row again."""
SPARE_SECONDS = 10.0
"""So long after an agent has begun, when it is at rest, its spare is started."""


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
    """A spare, and after `begin` one life of the agent. In a session of its own: Ctrl-C reaches it
    through us, and once.

    What we forward is blocked in it until its handlers are there: it dies of no early signal.
    """

    def __init__(self, command: list[str]) -> None:
        ours, theirs = os.pipe(), os.pipe()
        for end in (theirs[0], ours[1]):
            os.set_inheritable(end, True)
        told = f"{theirs[0]},{ours[1]}"
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

    def begin(self, *, restarts: int, crash: str) -> None:
        """Let it live. Raises OSError where it is dead."""
        os.write(self._kept, f"{restarts},{crash}\n".encode())
        self.began = time.monotonic()

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
        self._spare: Agent | None = None

    def run(self) -> int:
        """Until an agent has ended in order, or the first one never came up: its exit code.

        One that crashes after it was told to end has a last successor, which ends the backends.
        """
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        try:
            return self._run()
        finally:
            self._end_spare()

    def _run(self) -> int:
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
            agent = self._begun(restarts, crash)
        except OSError as exc:
            how = f"it could not be started: {exc.strerror or exc}"
            self._log.error("agent not started", how)
            return Death(code=1, how=how)
        if self._asked is not None:
            os.kill(agent.pid, self._asked)
        code = os.waitstatus_to_exitcode(self._status_of(agent))
        seconds = time.monotonic() - agent.began
        when = f"{_moment(time.time())}Z, {seconds:.0f} s after its start"
        how = f"exit code {code}" if code >= 0 else f"killed by {_name(-code)}"
        return Death(
            code=code if code >= 0 else 128 - code,
            said=agent.close(),
            seconds=seconds,
            how=f"{how} at {when} (pid {agent.pid})",
        )

    def _begun(self, restarts: int, crash: str) -> Agent:
        """The spare, if one lives."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            try:
                spare.begin(restarts=restarts, crash=crash)
            except OSError:  # it has just died, and is reaped with the rest
                spare.close()
            else:
                return spare
        agent = Agent(self._command)
        agent.begin(restarts=restarts, crash=crash)
        return agent

    def _status_of(self, agent: Agent) -> int:
        """Forward signals and reap whoever comes to us, until the agent is dead."""
        has_spare = self._spare is not None
        while True:
            for pid, status in self._dead():
                if pid == agent.pid:
                    return status
            if has_spare or self._asked is not None:
                number = signal.sigwaitinfo(self._watched).si_signo
            else:
                left = max(0.0, agent.began + SPARE_SECONDS - time.monotonic())
                caught = signal.sigtimedwait(self._watched, left)
                if caught is None:
                    self._start_spare()
                    has_spare = True  # or it cannot be had; one that dies is not replaced at once
                    continue
                number = caught.si_signo
            if number != signal.SIGCHLD:
                self._note(number)
                os.kill(agent.pid, number)

    def _rest(self, seconds: float) -> None:
        """Reap only, until the time is over or the end is asked for."""
        deadline = time.monotonic() + seconds
        while self._asked is None and (left := deadline - time.monotonic()) > 0:
            for _ in self._dead():
                pass
            caught = signal.sigtimedwait(self._watched, left)
            if caught is not None:
                self._note(caught.si_signo)

    def _start_spare(self) -> None:
        try:
            self._spare = Agent(self._command)
        except OSError as exc:
            self._log.info("no spare agent", f"it could not be started: {exc.strerror or exc}")

    def _end_spare(self) -> None:
        """It has begun nothing, and so has nothing to end."""
        if self._spare is not None:
            os.kill(self._spare.pid, signal.SIGKILL)
            os.waitpid(self._spare.pid, 0)

    def _dead(self) -> Iterator[tuple[int, int]]:
        """Reap every child that is dead: the agent, its spare, and orphans of whomever."""
        for pid, status in _dead():
            if self._spare is not None and pid == self._spare.pid:
                self._spare.close()
                self._spare = None
            yield pid, status

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
    return Supervisor(command, stops=on_exit != "leave", log=Log(form=form, level=level)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
