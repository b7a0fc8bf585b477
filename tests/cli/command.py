"""The command as a shell runs it: a process of its own, on pipes or on a terminal."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.waiting import wait_until

XGEN_MODEL = str(Path(sys.executable).with_name("xgen-model"))
_SECONDS = 60
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[()].)")


def environment(**more: str) -> dict[str, str]:
    """Ours without what would configure the command, and with a home that holds no state."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(
            ("XGEN_", "MINIO_", "AWS_", "XDG_", "COMP_", "NODE_NAME", "NO_COLOR", "KUBE")
        )
    }
    return {**kept, "TERM": "xterm-256color", "XDG_STATE_HOME": "/nonexistent/state", **more}


def xgen_model(
    *arguments: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with pipes for stdout and stderr."""
    return subprocess.run(
        [XGEN_MODEL, *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=_SECONDS,
        env=environment(**(env or {})),
        check=False,
    )


class Started:
    """A command that goes on; `raw` is what it has printed so far, stderr included."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor
        self._bytes = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def raw(self) -> str:
        return self._bytes.decode(errors="replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """Without colours and moves of the cursor."""
        return _ESCAPES.sub("", self.raw)

    def wait_for(self, said: str, *, times: int = 1) -> None:
        wait_until(lambda: self.text.count(said) >= times, what=f"{said!r}; so far:\n{self.text}")

    def type(self, text: str) -> None:
        """On its terminal."""
        os.write(self._descriptor, text.encode())

    def wait(self) -> int:
        """Its exit code, when all of its output has been read."""
        code = self._process.wait(_SECONDS)
        self._reader.join(_SECONDS)
        return code

    def interrupt(self) -> int:
        """Ctrl-C. Returns the exit code."""
        return self.end(signal.SIGINT)

    def end(self, number: signal.Signals) -> int:
        """Returns the exit code; negative after a death by a signal."""
        self._process.send_signal(number)
        return self.wait()

    def close(self) -> None:
        self._process.kill()
        self.wait()
        os.close(self._descriptor)

    def _read(self) -> None:
        """A terminal whose other side has closed is an error to read."""
        with contextlib.suppress(OSError):
            while chunk := os.read(self._descriptor, 65536):
                self._bytes += chunk


@contextlib.contextmanager
def started(
    *arguments: str | Path, columns: int | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Started]:
    """Start it, on a terminal of so many columns, or (None) with a pipe for its output."""
    if columns is None:
        ours, theirs = os.pipe()
    else:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [XGEN_MODEL, *map(str, arguments)],
        stdin=subprocess.DEVNULL if columns is None else theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**(env or {})),
        start_new_session=True,
    )
    os.close(theirs)
    command = Started(process, ours)
    try:
        yield command
    finally:
        command.close()


def on_a_terminal(
    *arguments: str | Path, columns: int, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run it to its end on a terminal. Returns the exit code and what was shown."""
    with started(*arguments, columns=columns, env=env) as command:
        code = command.wait()
        return code, command.raw
