"""Files below /dev, which a container or a user may have been given or not."""

import errno
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from reconciler.plan.gpu_survey import Cause


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


def counted(total: int, shut_away: Collection[Closed]) -> str:
    """How many GPUs there are, and how many of them are others' (they have no file here)."""
    said = f"{total} GPU{'' if total == 1 else 's'}"
    others = sum(not shut.denied for shut in shut_away)
    return f"{said}, {others} of them not given to us" if others else said


def not_used(address: str, shut: Closed) -> list[str]:
    """What is to be noted of a GPU whose file is shut: nothing where it is simply another's."""
    return [f"{address} is not used: {shut}"] if shut.denied else []


def without_devices(shut_away: Collection[Closed]) -> Cause:
    """Why there is none, where these are all that there are."""
    return Cause.NO_PERMISSION if any(shut.denied for shut in shut_away) else Cause.NO_DEVICE
