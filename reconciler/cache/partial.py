"""Files that are being written. Each is locked by its writer, so that the dead ones can be told."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.cache.layout import make_folder, sync_folder
from reconciler.cache.locking import held, try_lock


@dataclass(frozen=True, slots=True)
class Partial:
    fd: int
    path: Path

    def publish(self, target: Path) -> None:
        """Give the written file its name, on disk when this returns."""
        os.fchmod(self.fd, 0o644)
        os.fsync(self.fd)
        make_folder(target.parent)
        os.replace(self.path, target)
        sync_folder(target.parent)


@contextmanager
def new_partial(folder: Path) -> Iterator[Partial]:
    """An empty file to write; what was not published by the end of the block is removed."""
    path = folder / secrets.token_hex(16)
    with held(folder / ".lock"):  # nobody sweeps between the two steps
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try_lock(fd)
    try:
        yield Partial(fd, path)
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def remove_dead(folder: Path) -> None:
    """Remove what writers that are gone left behind."""
    with held(folder / ".lock"):
        for path in folder.iterdir():
            if path.name == ".lock" or not path.is_file():
                continue
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if try_lock(fd):
                    path.unlink()
            finally:
                os.close(fd)
