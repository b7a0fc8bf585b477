"""A child process, in a control group from its first moment on where there is one. Blocks."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from reconciler.apply import entering
from reconciler.apply.cgroup import enter, leave, make, members, procs_of


def execute(
    argv: Sequence[str], environment: Mapping[str, str], log: int, group: Path | None
) -> subprocess.Popen[bytes]:
    """The leader of a session of its own, which runs `argv` by now. Raises OSError as `exec` does,
    ValueError for a NUL byte."""
    if group is None or not make(group):
        return _spawn(argv, environment, log)
    child = _entering(argv, environment, log, group)
    if child is None:
        child = _spawn(argv, environment, log)
        enter(group, child.pid)
    if child.pid not in members(group):
        leave(group)
    return child


def _entering(
    argv: Sequence[str], environment: Mapping[str, str], log: int, group: Path
) -> subprocess.Popen[bytes] | None:
    """None: our own interpreter cannot be run, as while it is being upgraded."""
    told, tells = os.pipe()
    program = (sys.executable, "-I", "-S", entering.__file__, str(procs_of(group)), str(tells))
    try:
        try:
            child = _spawn((*program, *argv), environment, log, (tells,))
        except FileNotFoundError:
            return None
        finally:
            os.close(tells)
        with open(told, "rb", closefd=False) as file:
            said = file.read()
    finally:
        os.close(told)
    if said == b".":
        return child
    child.kill()
    child.wait()
    if not said:
        return None
    code = int(said[1:])
    raise OSError(code, os.strerror(code))


def _spawn(
    argv: Sequence[str], environment: Mapping[str, str], log: int, files: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=files,
    )
