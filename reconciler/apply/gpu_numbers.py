"""Which number each GPU of this node has, on disk: after a restart it means no other GPU.

<data-dir>/gpus.json    0600; without it GPUs are numbered anew, in PCI order

One that cannot be read is left where it is until there are numbers to keep; then it is put aside,
as gpus.json.unread. One that somebody removes or changes while the agent runs is written anew.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from reconciler.atomic_file import cause_and_cure, replace_file
from reconciler.errors import Transient
from reconciler.own_files import FilesKept, OwnFile, OwnFiles
from reconciler.plan.gpu_roll import Roll, recalled
from reconciler.plan.gpus import Gpu

VERSION = 1
FILE = "gpus.json"
"""In the data folder."""
_log = structlog.get_logger("xgen.gpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    version: int
    gpus: tuple[Gpu, ...]


class GpuNumbers:
    """Reads the file at once, where there is one; `roll`: what it holds. Any thread may ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._busy = threading.Lock()
        self._own = OwnFiles("a restart would number the GPUs anew")
        self._unread: str | None = None
        self._put_away: tuple[str, ...] = ()
        self.roll: Roll | None = None
        try:
            file = OwnFile.read(path)
            self.roll = _decode(file.content)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as exc:
            self._unread = f"cannot read {path}: {exc}; the GPUs are numbered anew"
            _log.warning("the GPUs are numbered anew", path=str(path), error=str(exc))
        else:
            self._own.take(file)

    def write(self, gpus: Sequence[Gpu]) -> None:
        """Whole or not at all, and on the disk when it returns. Raises Transient."""
        content = msgspec.json.encode(_File(version=VERSION, gpus=tuple(gpus)))
        try:
            with self._busy:
                self._put_aside()
                replace_file(self._path, content)
                self._own.take(OwnFile(path=self._path, content=content))
        except OSError as exc:
            why = cause_and_cure(exc, self._path.parent)
            raise Transient(f"cannot write {self._path}: {why}") from exc

    def keep(self) -> FilesKept:
        """Write it anew if somebody removed or changed it."""
        with self._busy:
            kept = self._own.keep()
            away, self._put_away = self._put_away, ()
        return FilesKept(problems=kept.problems, rewritten=(*away, *kept.rewritten))

    def _put_aside(self) -> None:
        """What could not be read at the start, whatever has become of it since."""
        if self._unread is None:
            return
        aside = self._path.with_suffix(".json.unread")
        try:
            self._path.replace(aside)
        except FileNotFoundError:
            pass  # somebody has removed it
        else:
            self._put_away = (f"{self._unread}: it is kept as {aside}",)
        self._unread = None


def _decode(content: bytes) -> Roll:
    found = msgspec.json.decode(content, type=_File)
    if found.version != VERSION:
        raise ValueError(f"it has version {found.version}, not {VERSION}")
    return recalled(found.gpus)
