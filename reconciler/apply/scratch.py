"""The folder of one spawn for its sockets and temporary files: made before it, removed after it.

<TMPDIR>/xgen-<nonce>    0700; the spawn's own TMPDIR
/tmp/xgen-<nonce>        for its sockets, where the other one is too long a path for them

A killed engine leaves its sockets (vLLM: under made-up names), and a crashed one what it was just
writing. The nonce in the name proves that a folder is the spawn's, whoever removes it.
"""

import errno
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.plan.ids import Nonce

_SHORT = Path("/tmp")
_LONGEST_BYTES = 64
"""A socket's whole path has 107 at most, and vLLM's names are UUIDs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Two folders, or twice the same one."""

    temporary: Path
    sockets: Path

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((str(self.temporary), str(self.sockets))))


def scratch_of(nonce: Nonce, temporary: str | None, *, with_sockets: bool) -> Scratch:
    """Where they will be. `temporary`: the TMPDIR of the agent; one that is not there is none.
    `with_sockets`: the spawn is told where its sockets go."""
    usual = Path(temporary).absolute() if temporary else _SHORT
    own = (usual if usual.is_dir() else _SHORT) / _name(nonce)
    too_long = with_sockets and len(os.fsencode(own)) > _LONGEST_BYTES
    return Scratch(temporary=own, sockets=_SHORT / _name(nonce) if too_long else own)


def make(scratch: Scratch) -> None:
    """Raises OSError, also where something of the name is there."""
    for folder in scratch.folders:
        Path(folder).mkdir(mode=0o700)


def remove(nonce: Nonce, folders: Sequence[str]) -> str | None:
    """Once nobody of the spawn lives. Returns why one cannot be, as a sentence; None: they are
    gone, but for what does not bear the nonce, and is nothing of ours."""
    problems = []
    for folder in map(Path, folders):
        if folder.name != _name(nonce):
            continue
        try:
            _need_ours(folder.lstat())
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
        except OSError as exc:
            cause = (exc.strerror or str(exc)).lower()
            problems.append(f"cannot remove {folder}: {cause}; remove it by hand")
    return problems[0] if problems else None


def _need_ours(status: os.stat_result) -> None:
    """Raises OSError: whoever put it there may need it."""
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ENOTDIR, "it is no folder, as the agent made it")
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"it belongs to uid {status.st_uid}")


def _name(nonce: Nonce) -> str:
    return f"xgen-{nonce}"
