"""The command as a shell runs it: a process of its own, on pipes or on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

XGEN_MODEL = str(Path(sys.executable).with_name("xgen-model"))
_SECONDS = 60


def environment(**more: str) -> dict[str, str]:
    """Ours without what would configure the command, and with a home that holds no state."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XGEN_", "MINIO_", "XDG_", "COMP_", "NODE_NAME", "NO_COLOR"))
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


def on_a_terminal(
    *arguments: str | Path, columns: int, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run it on a terminal of so many columns. Returns the exit code and what was shown."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [XGEN_MODEL, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**(env or {})),
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := _read(ours):
                shown += chunk
            code = process.wait(_SECONDS)
        finally:
            process.kill()
            os.close(ours)
    return code, shown.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    """Empty at the end: a terminal whose other side has closed is an error to read."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
