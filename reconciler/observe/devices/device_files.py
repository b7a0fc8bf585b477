"""Files below /dev, which a container or a user may have been given or not."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A device file that cannot be opened. `denied`: it is there, and not for us."""

    name: str
    cause: str
    denied: bool

    def __str__(self) -> str:
        return f"/dev/{self.name}: {self.cause}"


def closed(root: Path, name: str) -> Closed | None:
    """Why a file below /dev cannot be opened for reading and writing; None: it can."""
    try:
        os.close(os.open(root / "dev" / name, os.O_RDWR | os.O_CLOEXEC))
    except OSError as exc:
        denied = exc.errno in (errno.EACCES, errno.EPERM)
        return Closed(name=name, cause=exc.strerror or str(exc), denied=denied)
    return None
