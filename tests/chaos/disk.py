"""The data folder on a small file system of its own, which can be filled to the last block."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SIZE = "96m"


@dataclass(kw_only=True)
class Disk:
    """`small`: False where nothing may be mounted; then it is never filled."""

    folder: Path
    small: bool
    full: bool = False

    @property
    def _filler(self) -> Path:
        return self.folder / "somebody-else"

    def fill(self) -> None:
        self.full = True
        with self._filler.open("wb", buffering=0) as file:
            for block in (1 << 20, 4096):
                try:
                    while True:
                        file.write(bytes(block))
                except OSError as exc:
                    if exc.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        self._filler.unlink()
        self.full = False


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", str(folder)]
    small = (
        os.getuid() == 0 and not subprocess.run(mount, check=False, capture_output=True).returncode
    )
    try:
        yield Disk(folder=folder, small=small)
    finally:
        if small:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
