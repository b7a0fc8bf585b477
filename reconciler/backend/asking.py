"""Asks an engine's program something, in a session of its own and with a time limit.

Whatever it has started ends with it, in whichever session: a script that leaves a process behind
would leave one for each question.
"""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from secrets import token_hex

_LOOK_SECONDS = 0.1
"""Between looks whether an answer is still waited for."""
_given_up: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)
_MARK = "XGEN_PROBE"
"""A variable; its value, new for each question, tells what the program has started."""
_DEATH_SECONDS = 5.0
_LOOKS = 10
"""For those that start others meanwhile."""
_ANSWER_BYTES = 256 * 1024
_LAST_LINE_CHARACTERS = 200


class Unusable(Exception):
    """What the engine did, as the rest of a sentence that begins with its path."""


class GivenUp(Exception):
    """Nobody waits for the answer any more."""


@contextlib.contextmanager
def until(given_up: threading.Event) -> Iterator[None]:
    """Questions asked in here raise GivenUp once that is set, with all that they started ended."""
    token = _given_up.set(given_up)
    try:
        yield
    finally:
        _given_up.reset(token)


def need_executable(path: str) -> None:
    if not os.path.isfile(path):
        raise Unusable("is not a file")
    if not os.access(path, os.X_OK):
        raise Unusable("is not executable")


def ask(command: Sequence[str], when: str, search_path: str, seconds: float) -> str:
    """Everything that it prints, on either stream. Raises Unusable, or GivenUp (`until`)."""
    mark = token_hex(16)
    # Not a pipe: a child of the engine's may hold it open for ever.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"PATH": search_path, "LC_ALL": "C", _MARK: mark},
            )
        except OSError as exc:
            raise Unusable(f"cannot be run: {exc.strerror}") from exc
        answered = False
        try:
            answered = _has_ended(process.pid, seconds)
        finally:
            code = _end(process, mark)
        if not answered:
            raise Unusable(f"gave no answer within {seconds:.0f} s {when}")
        output.seek(0)
        text = output.read(_ANSWER_BYTES).decode("utf-8", "replace")
    if code != 0:
        raise Unusable(f"{_death(code)} {when}{_last_line(text)}")
    return text


def _has_ended(pid: int, seconds: float) -> bool:
    """Waits for it, and leaves it to be reaped. Raises GivenUp."""
    given_up, deadline = _given_up.get(), time.monotonic() + seconds
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if poll.poll(max(min(left, _LOOK_SECONDS), 0) * 1000):
                return True
            if left <= 0:
                return False
            if given_up is not None and given_up.is_set():
                raise GivenUp
    finally:
        os.close(pidfd)


def _end(process: subprocess.Popen[bytes], mark: str) -> int:
    """It and whatever it started. Returns its exit code; until it is reaped, the session's number
    is its pid and nobody else's. Raises Unusable where it stays: it waits for a dead disk, or runs
    as another user, as by sudo."""
    with contextlib.suppress(PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        code = process.wait(_DEATH_SECONDS)
    except subprocess.TimeoutExpired as exc:
        raise Unusable("does not end, not even when it is killed") from exc
    entry = f"{_MARK}={mark}".encode()
    ended: set[int] = set()
    for _ in range(_LOOKS):
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        more = {pid for pid in pids - ended if _end_one(pid, entry)}
        if not more:
            break
        ended |= more
    return code


def _end_one(pid: int, entry: bytes) -> bool:
    """If it has that in its environment. Held meanwhile: its number may be given anew."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if entry in (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
        finally:
            os.close(pidfd)
    return False


def _death(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"died of {signal.Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"


def _last_line(text: str) -> str:
    printable = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    lines = [line.strip() for line in printable.split("\n")]
    last = next((line for line in reversed(lines) if line), "")
    return f": {last[:_LAST_LINE_CHARACTERS]}" if last else ""
