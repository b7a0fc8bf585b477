"""Orphans of backends come to us and are reaped by us; nobody else's child ever is.

A `waitpid(-1)` would take the exit status of every other subprocess that the agent runs.
"""

import contextlib
import ctypes
import os
import threading

from reconciler.observe.processes import Process, read_process

_PR_SET_CHILD_SUBREAPER = 36
_reaping = threading.Lock()


def become_subreaper() -> None:
    """From now on this process, not pid 1, inherits what its descendants orphan. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_CHILD_SUBREAPER): {os.strerror(number)}")


def reap(process: Process) -> None:
    """Take the exit status of this one zombie, if it is a child of ours."""
    with _reaping:
        now = read_process(process.pid)
        if now is None or now.alive or now.start_ticks != process.start_ticks:
            return
        if now.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG)
