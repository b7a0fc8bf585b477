"""Which number each GPU of this node has, on disk: after a restart it means no other GPU.

<data-dir>/gpus.json    0600; without it GPUs are numbered anew, in PCI order
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from reconciler.atomic_file import cause_and_cure, replace_file
from reconciler.errors import Transient
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
    """Reads the file at once, where there is one; `roll`: what it holds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.roll: Roll | None = None
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
            if found.version != VERSION:
                raise ValueError(f"it has version {found.version}, not {VERSION}")
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as exc:
            _log.warning("the GPUs are numbered anew", path=str(path), error=str(exc))
        else:
            self.roll = recalled(found.gpus)

    def write(self, gpus: Sequence[Gpu]) -> None:
        """Whole or not at all, and on the disk when it returns. Raises Transient."""
        content = msgspec.json.encode(_File(version=VERSION, gpus=tuple(gpus)))
        try:
            replace_file(self._path, content)
        except OSError as exc:
            why = cause_and_cure(exc, self._path.parent)
            raise Transient(f"cannot write {self._path}: {why}") from exc
