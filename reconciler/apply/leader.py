"""The first process of a spawn, held by a pidfd, so that a number given anew is never hit."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from reconciler.observe.processes import Process, read_process


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a process ended: with a code, or by a signal; both None where nobody can say, as of one
    that is not our child."""

    code: int | None = None
    signal: str | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed by {self.signal}"
        return "gone" if self.code is None else f"exited with code {self.code}"


class Leader:
    """`gone` is set once it has exited, reaped or not.

    A child of ours stays a zombie until `reap`: till then its pid, and with it the number of its
    session and group, cannot be given to a stranger, and a signal to the group is safe.
    """

    def __init__(self, *, pid: int, pidfd: int, child: bool) -> None:
        self.pid = pid
        self.gone = asyncio.Event()
        self.status = ExitStatus()
        self._pidfd = pidfd
        self._child = child
        self._watched = False

    @property
    def held(self) -> bool:
        """It is our child, alive or not, and not reaped yet."""
        return self._child

    def watch(self, exited: Callable[[], None]) -> None:
        """Call back at its exit, at once."""

        def on_exit() -> None:
            if self._end(os.WNOWAIT):
                exited()

        asyncio.get_running_loop().add_reader(self._pidfd, on_exit)
        self._watched = True

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(self._pidfd, number)

    def send_to_group(self, number: signal.Signals) -> None:
        """To every process of its group; nothing when its number is not held any more."""
        if self._child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> None:
        """After its exit, and after the last signal to its group."""
        if self._end(0):
            self._child = False

    def close(self) -> None:
        self._unwatch()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def _end(self, flags: int) -> bool:
        """Note its exit; False when it has not exited."""
        if self._child:
            status = self._read_status(flags)
            if status is None:
                return False
            self.status = status
        self._unwatch()
        self.gone.set()
        return True

    def _unwatch(self) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            self._watched = False

    def _read_status(self, flags: int) -> ExitStatus | None:
        try:
            result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG | flags)
        except ChildProcessError:
            return ExitStatus()
        if result is None:
            return None
        if result.si_code == os.CLD_EXITED:
            return ExitStatus(code=result.si_status)
        return ExitStatus(signal=_signal_name(result.si_status))


def hold(process: Process) -> int | None:
    """A pidfd for exactly this process, which is not ours to wait for; None when it is gone."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return None
    now = read_process(process.pid)
    if now is None or now.start_ticks != process.start_ticks:
        os.close(pidfd)
        return None
    return pidfd


def send(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process, or nobody."""
    pidfd = hold(process)
    if pidfd is None:
        return
    try:
        signal.pidfd_send_signal(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(pidfd)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
