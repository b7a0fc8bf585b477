"""`run --supervise`, on both sides: puts the supervisor in this command's place, and is the
agent's line to it."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import NoReturn, Self

from reconciler.apply.reaper import become_subreaper
from reconciler.cli import supervisor
from reconciler.errors import Rejected
from reconciler.plan.ending import OnExit
from reconciler.status import Supervision


def become_supervisor(*, console: bool, level: str, on_exit: OnExit) -> NoReturn:
    """Exec the supervisor, which runs this same command again as its child. Raises Rejected.

    What is set here outlives the exec: orphans come to this process, and no signal is lost.
    """
    try:
        become_subreaper()
    except OSError as exc:
        raise Rejected(f"cannot supervise an agent: {exc.strerror or exc}") from exc
    signal.pthread_sigmask(signal.SIG_BLOCK, supervisor.FORWARDED)
    form = "console" if console else "json"
    program = [sys.executable, "-S", "-P", supervisor.__file__, form, level, on_exit]
    os.execv(program[0], [*program, sys.executable, *sys.orig_argv[1:]])


class SupervisorLine:
    """The agent's two pipes: what it says to its supervisor, and whether that still lives."""

    def __init__(self, told: str) -> None:
        read, write = told.split(",")
        self._read, self._write = int(read), int(write)
        for end in (self._read, self._write):
            os.set_inheritable(end, False)

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Self | None:
        """None: no supervisor has started this process. No child of ours is told of it."""
        told = environment.pop(supervisor.VARIABLE, None)
        return cls(told) if told is not None else None

    def wait(self) -> Supervision | None:
        """Until it is this process's turn: what came before. None: the supervisor has gone."""
        line = b""
        while not line.endswith(b"\n"):
            came = os.read(self._read, 1024)
            if not came:
                return None
            line += came
        restarts, crash = line.decode(errors="replace").rstrip("\n").split(",", 1)
        return Supervision(restarts=int(restarts), crash=crash or None)

    def heed(self, gone: Callable[[], None]) -> None:
        """In the event loop, once its handlers are there: take the signals that were held back,
        and call `gone` when the supervisor has died."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._read)
            gone()

        loop.add_reader(self._read, ended)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, supervisor.FORWARDED)

    def say_up(self) -> None:
        self._say(supervisor.UP)

    def say_ended(self) -> None:
        self._say(supervisor.ENDED)

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):  # it is gone
            os.write(self._write, word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """To run the agent. Both None: nobody supervises this process."""

    supervisor: SupervisorLine | None = None
    supervision: Supervision | None = None


def await_turn(environment: MutableMapping[str, str], prepare: Callable[[], None]) -> Turn | None:
    """As a spare: what can be done before is `prepare`d, and its turn is waited for. None: it never
    comes, for the supervisor has gone."""
    supervisor = SupervisorLine.taken_from(environment)
    if supervisor is None:
        return Turn()
    prepare()
    supervision = supervisor.wait()
    return Turn(supervisor=supervisor, supervision=supervision) if supervision is not None else None
