"""Asks an engine's program something, in a session of its own and with a time limit."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence

_ANSWER_BYTES = 256 * 1024
_LAST_LINE_CHARACTERS = 200


class Unusable(Exception):
    """What the engine did, as the rest of a sentence that begins with its path."""


def need_executable(path: str) -> None:
    if not os.path.isfile(path):
        raise Unusable("is not a file")
    if not os.access(path, os.X_OK):
        raise Unusable("is not executable")


def ask(command: Sequence[str], when: str, search_path: str, seconds: float) -> str:
    """Everything that it prints, on either stream. Raises Unusable."""
    # Not a pipe: a child of the engine's may hold it open for ever.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={"PATH": search_path, "LC_ALL": "C"},
            )
        except OSError as exc:
            raise Unusable(f"cannot be run: {exc.strerror}") from exc
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as exc:
            raise Unusable(f"gave no answer within {seconds:.0f} s {when}") from exc
        finally:
            _end(process)
        output.seek(0)
        text = output.read(_ANSWER_BYTES).decode("utf-8", "replace")
    if code != 0:
        raise Unusable(f"{_death(code)} {when}{_last_line(text)}")
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and whatever it started; the session's number is its pid until it is reaped."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
