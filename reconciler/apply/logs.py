"""The backends' log files, appended to by the child itself, never through a pipe.

<data-dir>/logs/<name>.log      what was printed, with a line of ours before (`spawn_logs`: whose)
<data-dir>/logs/<name>.log.1    what the last rotation put aside
"""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from reconciler.plan.ids import ModelName

HEADER_PREFIX = "[xgen-model] "
_TAIL_BYTES = 64 * 1024
_LINE_CHARACTERS = 500
_NAME_CHARACTERS = 150
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def log_path(folder: Path, model: ModelName) -> Path:
    """Unique a model, for any name: `/` and a leading dot are escaped, long names are hashed."""
    name = quote(model, safe="")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _NAME_CHARACTERS:
        digest = hashlib.sha256(model.encode()).hexdigest()[:16]
        name = f"{name[:_NAME_CHARACTERS]}-{digest}"
    return folder / f"{name}.log"


def open_log(path: Path) -> int:
    """A file descriptor for a child's output. Appending, so that a rotation can cut the file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def write_header(log: int, text: str) -> None:
    """One line of ours, in one write, so that no line of a child's is torn by it."""
    os.write(log, f"{HEADER_PREFIX}{printable(text)}\n".encode())


def write_end(path: Path, text: str) -> None:
    """One line of ours after all others, though the last one of a child's has no end. Where it
    cannot be written it is done without."""
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    with contextlib.suppress(OSError), path.open("rb+") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - 1))
        newline = b"" if log.read() in (b"", b"\n") else b"\n"
        log.write(newline + f"{HEADER_PREFIX}{moment} {printable(text)}\n".encode())


def rotate(path: Path, max_bytes: int) -> bool:
    """Copy a log that grew past the limit to `.1` and empty it; the child keeps writing to it.

    True when it was emptied. What is written between the two steps is lost. A copy that fails (no
    space left, say) is done without: better a lost log than a full disk.
    """
    try:
        if path.stat().st_size <= max_bytes:
            return False
    except FileNotFoundError:
        return False
    older = path.with_name(f"{path.name}.1")
    partial = path.with_name(f"{path.name}.1.partial")
    try:
        shutil.copyfile(path, partial)
        partial.chmod(0o600)
        partial.replace(older)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
    os.truncate(path, 0)
    return True


def tail(path: Path, lines: int, *, from_offset: int = 0) -> tuple[str, ...]:
    """The last lines that stand after an offset, at most 64 KiB of them, fit for a terminal."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            # An offset past the end: the file was emptied since, and all of it is newer.
            begin = from_offset if from_offset <= end else 0
            file.seek(max(begin, end - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(_last(_readable(text), lines))


def _readable(text: str) -> Iterable[str]:
    for line in text.split("\n"):
        # Progress bars rewrite their line with carriage returns: the last state counts.
        shown = printable(line.rstrip("\r").rpartition("\r")[2]).rstrip()
        if shown and not shown.startswith(HEADER_PREFIX):
            yield shown[:_LINE_CHARACTERS]


def _last(lines: Iterable[str], count: int) -> list[str]:
    kept = list(lines)
    return kept[-count:] if count > 0 else []


def printable(text: str) -> str:
    without_colours = _ESCAPES.sub("", text)
    return "".join(c if c.isprintable() else " " for c in without_colours)
