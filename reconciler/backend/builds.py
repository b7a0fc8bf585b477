"""Finds the engines that are installed on this node, by asking each for its version.

An engine may be built for another CPU, lack a library, or hang: all that is found here, not when a
model waits for it.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence

from reconciler.backend.flags import Flags, parse_help
from reconciler.backend.inventory import (
    LLAMA_SERVER_CPU,
    XLLAMACPP,
    Build,
    Inventory,
    Missing,
)
from reconciler.backend.xllamacpp import CHILD
from reconciler.backend.xllamacpp_params import FLAGS

ANSWER_SECONDS = 10.0
"""For `--version`. A GPU build on a cold disk takes some seconds."""
_ANSWER_BYTES = 256 * 1024
_LAST_LINE_CHARACTERS = 200
_VERSION = re.compile(r"^version: *(?P<version>\S+)(?: *\((?P<more>[^)]*)\))?", re.MULTILINE)


def discover(
    *,
    llama_server: str | None,
    search_path: str,
    python: str,
    answer_seconds: float = ANSWER_SECONDS,
) -> Inventory:
    """Look for every engine. Blocks as long as they take to answer.

    `llama_server`: a binary that an operator named, else the first on `search_path` (as PATH);
    `python`: our own interpreter.
    """
    found = (
        _llama_server(llama_server, search_path, answer_seconds),
        _xllamacpp(python, search_path, answer_seconds),
    )
    return Inventory(
        builds=tuple(one for one in found if isinstance(one, Build)),
        missing=tuple(one for one in found if isinstance(one, Missing)),
    )


def _xllamacpp(python: str, search_path: str, seconds: float) -> Build | Missing:
    if importlib.util.find_spec("xllamacpp") is None:
        return Missing(id=XLLAMACPP, reason="not installed; pip install 'xgen-model[demo]'")
    try:
        _ask((python, "-P", "-c", "import xllamacpp"), "when imported", search_path, seconds)
    except _Unusable as exc:
        return Missing(id=XLLAMACPP, reason=f"xllamacpp {exc}")
    try:
        version = importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        version = None
    return Build(
        id=XLLAMACPP,
        command=(python, *CHILD),
        version=version,
        detail=f"xllamacpp {version or 'of an unknown version'} of our own environment",
        flags=FLAGS,
    )


def _llama_server(named: str | None, search_path: str, seconds: float) -> Build | Missing:
    path = named or shutil.which("llama-server", path=search_path)
    if path is None:
        reason = "no llama-server on PATH; install llama.cpp or give --llama-server PATH"
        return Missing(id=LLAMA_SERVER_CPU, reason=reason)
    path = os.path.abspath(path)
    try:
        _need_executable(path)
        answer = _ask((path, "--version"), "when asked for --version", search_path, seconds)
        found = _VERSION.search(answer)
        if found is None:
            raise _Unusable("gave no version when asked for it, so it is no llama-server")
    except _Unusable as exc:
        return Missing(id=LLAMA_SERVER_CPU, reason=f"{path} {exc}")
    version = " ".join(filter(None, (found["version"], found["more"] and f"({found['more']})")))
    return Build(
        id=LLAMA_SERVER_CPU,
        command=(path,),
        version=version,
        detail=f"{path}, version {version}",
        flags=_flags(path, search_path, seconds),
    )


def _flags(path: str, search_path: str, seconds: float) -> Flags:
    """A build that does not tell its flags is taken as it is; a wrong one then ends its start."""
    try:
        return parse_help(_ask((path, "--help"), "when asked for --help", search_path, seconds))
    except _Unusable:
        return Flags()


class _Unusable(Exception):
    """What the engine did, as the rest of a sentence that begins with its path."""


def _need_executable(path: str) -> None:
    if not os.path.isfile(path):
        raise _Unusable("is not a file")
    if not os.access(path, os.X_OK):
        raise _Unusable("is not executable")


def _ask(command: Sequence[str], when: str, search_path: str, seconds: float) -> str:
    """Everything that it prints, on either stream. Raises _Unusable."""
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
            raise _Unusable(f"cannot be run: {exc.strerror}") from exc
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as exc:
            raise _Unusable(f"gave no answer within {seconds:.0f} s {when}") from exc
        finally:
            _end(process)
        output.seek(0)
        text = output.read(_ANSWER_BYTES).decode("utf-8", "replace")
    if code != 0:
        raise _Unusable(f"{_death(code)} {when}{_last_line(text)}")
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
