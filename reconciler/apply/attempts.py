"""What came of the last revisions, on disk: <data-dir>/revisions.json, 0600.

One that cannot be read is put aside, as revisions.json.unread, once there is something newer.
"""

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from reconciler.apply.custody import HoldFolder
from reconciler.atomic_file import cause_and_cure
from reconciler.attempt import Attempt
from reconciler.errors import Transient
from reconciler.own_files import FilesKept, OwnFile, OwnFiles

FILE = "revisions.json"
VERSION = 1


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """Additions to an attempt must be optional: the release before reads this file, too."""

    version: int
    revisions: tuple[Attempt, ...]


class _Version(msgspec.Struct):
    version: int


class AttemptsFile:
    """Any thread may ask. `problem`: why what is on disk could not be read; None: it could be.
    `hold_folder`: of the data folder."""

    def __init__(self, path: Path, hold_folder: HoldFolder = lambda: None) -> None:
        self._path = path
        self._hold_folder = hold_folder
        self._busy = threading.Lock()
        self._own = OwnFiles("a restart would not know what came of earlier revisions")
        self.problem: str | None = None

    def read(self) -> tuple[Attempt, ...]:
        """The oldest first; none where there are none, or they cannot be read. Never raises."""
        try:
            file = OwnFile.read(self._path)
            attempts = _decode(file.content)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError) as exc:
            self.problem = (
                f"cannot read {self._path}: {exc}; what came of earlier revisions is not known, "
                "and the file is kept"
            )
            return ()
        self._own.take(file)
        return attempts

    def write(self, attempts: Sequence[Attempt]) -> str | None:
        """Whole or not at all, and on the disk when it returns. What was put aside for it, as a
        sentence. Raises Transient."""
        if (why := self._hold_folder()) is not None:
            raise Transient(f"cannot write {self._path}: {why}")
        try:
            with self._busy:
                told = self._put_aside() if self.problem is not None else None
                self._own.write(self._path, _encode(attempts))
        except OSError as exc:
            why = cause_and_cure(exc, self._path.parent)
            raise Transient(f"cannot write {self._path}: {why}") from exc
        return told

    def keep(self) -> FilesKept:
        """See `KeptFiles`."""
        with self._busy:
            return self._own.keep()

    def _put_aside(self) -> str:
        aside = self._path.with_suffix(".json.unread")
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path, aside)
        told, self.problem = f"{self.problem}: as {aside}", None
        return f"{told}, and {self._path} is written anew"


def _encode(attempts: Sequence[Attempt]) -> bytes:
    file = _File(version=VERSION, revisions=tuple(attempts))
    return msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"


def _decode(content: bytes) -> tuple[Attempt, ...]:
    version = msgspec.json.decode(content, type=_Version).version
    if version != VERSION:
        raise ValueError(f"it has version {version}, this agent knows {VERSION}")
    return msgspec.json.decode(content, type=_File).revisions
