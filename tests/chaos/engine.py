"""A `llama-server` that is the stand-in backend, and whose processes tell in /proc what they were
asked for."""

import stat
import sys
from pathlib import Path

from tests.e2e.agent import STAND_IN

ARGUMENTS = "XGEN_CHAOS_ARGUMENTS"
"""In the environment of the stand-in and of its children: llama-server's arguments."""
_SEPARATOR = "\x1f"

_PROGRAM = """#!{python}
import os, shlex, sys
args = sys.argv[1:]
if "--version" in args:
    print("version: 9999 (stand-in)", file=sys.stderr)
    sys.exit(0)
if "--list-devices" in args:
    print("Available devices:", "  (none)", sep="\\n")
    sys.exit(0)
if "--help" in args:
    sys.exit(0)
value = lambda flag: args[args.index(flag) + 1]
env = {{**os.environ, {variable!r}: {separator!r}.join(args)}}
words = [sys.executable, {stand_in!r}, "--port", value("--port"), "--name", value("--alias")]
os.execve(sys.executable, [*words, *shlex.split(os.environ.get("STAND_IN", ""))], env)
"""


def install(folder: Path) -> Path:
    path = folder / "llama-server"
    path.write_text(
        _PROGRAM.format(
            python=sys.executable,
            variable=ARGUMENTS,
            separator=_SEPARATOR,
            stand_in=str(STAND_IN),
        ),
        encoding="utf-8",
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def split(told: str) -> tuple[str, ...]:
    return tuple(told.split(_SEPARATOR))
