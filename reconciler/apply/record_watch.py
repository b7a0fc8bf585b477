"""Hears at once that somebody has taken a record away, by inotify.

A look at the records every two seconds finds the same. An agent that dies in between, in the same
accident, say, would leave processes that the next one does not know.
"""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

_CLOSE_WRITE, _MOVED_FROM, _DELETE = 0x8, 0x40, 0x200
_DELETE_SELF, _MOVE_SELF, _ONLYDIR = 0x400, 0x800, 0x1000000
_MASK = _CLOSE_WRITE | _MOVED_FROM | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
"""What is done to files under their own names. We write under others, and rename them."""
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


class RecordWatch:
    """Calls `harmed` in the event loop. Where the system has no watch to give, never: that is no
    fault, but slower."""

    def __init__(self, folder: Path, harmed: Callable[[], None]) -> None:
        self._folder = folder
        self._harmed = harmed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file: int | None = None
        self._watched: tuple[int, int] | None = None

    def open(self) -> None:
        """In the event loop."""
        file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if file >= 0:
            self._file = file
            asyncio.get_running_loop().add_reader(file, self._read, file)
            self.renew()

    def renew(self) -> None:
        """Watch the folder that is in its place now. Any thread may ask; it costs one look."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            status = self._folder.stat()
            identity = (status.st_dev, status.st_ino)
            if identity != self._watched:
                path = os.fsencode(self._folder)
                watched = self._libc.inotify_add_watch(self._file, path, _MASK) >= 0
                self._watched = identity if watched else None

    def close(self) -> None:
        if self._file is not None:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
            self._file = None

    def _read(self, file: int) -> None:
        with contextlib.suppress(BlockingIOError):
            events = os.read(file, _READ_BYTES)
            names = _names(events)
            if "" in names:  # the folder itself has gone: another one may get its very inode
                self._watched = None
            if any(not name or name.endswith(".json") for name in names):
                self._harmed()


def _names(events: bytes) -> list[str]:
    """Of files; empty for what became of the folder."""
    names, at = [], 0
    while at < len(events):
        *_, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size
        names.append(os.fsdecode(events[at : at + length].rstrip(b"\0")))
        at += length
    return names
