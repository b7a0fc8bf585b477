"""Reads one log file from its end on, over rotations, without what must not be shown.

Lines are fit for a terminal, and the keys of live backends are masked in them.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from reconciler.apply.logs import printable
from reconciler.masking import masked_text

_BLOCK_BYTES = 64 * 1024
_MOST_BYTES = 8 * 1024 * 1024
"""Read at a time."""
_LONGEST_LINE_BYTES = 64 * 1024
"""A line without end is given out in pieces of about this size."""
_KEPT_BYTES = 512
"""Of such a piece, for the next one: no key is cut in two."""

Secrets = Callable[[], Iterable[str]]


class LogReader:
    """`last` first, if it is not to begin at its beginning, then `more` again and again. `secrets`:
    what is masked, asked for at each read. A log that is not there yet reads as empty."""

    def __init__(self, path: Path, secrets: Secrets) -> None:
        self._path = path
        self._older = path.with_name(f"{path.name}.1")
        self._secrets = secrets
        self._position = 0
        self._partial = b""
        self._copy = 0

    async def last(self, lines: int) -> bytes:
        """The last lines, those from before the last rotation too where they are needed."""
        secrets = tuple(self._secrets())
        return _shown(await asyncio.to_thread(self._last, lines), secrets)

    async def more(self) -> bytes:
        """The whole lines that came since, or nothing."""
        secrets = tuple(self._secrets())
        return _shown(await asyncio.to_thread(self._more), secrets)

    def _last(self, lines: int) -> bytes:
        self._copy, _ = _file(self._older)
        _, self._position = _file(self._path)
        text = _ending(self._path, self._position, lines)
        if (missing := lines - text.count(b"\n")) > 0:
            text = _ending(self._older, _file(self._older)[1], missing) + text
        whole, newline, self._partial = text.rpartition(b"\n")
        return b"\n".join(whole.split(b"\n")[-lines:]) + newline if lines > 0 else b""

    def _more(self) -> bytes:
        """A rotation copies the log aside and empties it: what we have not read is in the copy.

        Between the two steps the log is no shorter than the new copy.
        """
        _, size = _file(self._path)
        copy, copied = _file(self._older)
        text = self._partial
        if copy != self._copy and size < copied:
            text += _read(self._older, self._position, copied)
            self._position, self._copy = 0, copy
        elif size < self._position:  # emptied without a copy: the disk was full
            self._position = 0
        fresh = _read(self._path, self._position, size)
        self._position += len(fresh)
        text += fresh
        end = _end_of_last_line(text)
        self._partial = text[end:]
        return text[:end]


def _end_of_last_line(text: bytes) -> int:
    """Progress bars end a line with a carriage return alone, unless a newline may follow it."""
    end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
    if end == 0 and len(text) > _LONGEST_LINE_BYTES:
        return len(text) - _KEPT_BYTES
    return end


def _shown(text: bytes, secrets: tuple[str, ...]) -> bytes:
    """Of a line that was rewritten with carriage returns the last state counts."""
    if not text:
        return b""
    lines = text.removesuffix(b"\n").split(b"\n")
    states = [line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace") for line in lines]
    shown = "".join(f"{printable(state)}\n" for state in states)
    return masked_text(shown, secrets).encode()


def _file(path: Path) -> tuple[int, int]:
    """Its number and its size; zeros where there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_size


def _read(path: Path, begin: int, end: int) -> bytes:
    if end <= begin:
        return b""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read(min(end - begin, _MOST_BYTES))
    except OSError:
        return b""


def _ending(path: Path, end: int, lines: int) -> bytes:
    """At least so many last lines before `end`, where they are there; the first one is whole."""
    begin = end
    text = b""
    while begin > 0 and text.count(b"\n") <= lines and end - begin < _MOST_BYTES:
        start = max(0, begin - _BLOCK_BYTES)
        text = _read(path, start, begin) + text
        begin = start
    return text if begin == 0 else text.partition(b"\n")[2]
