"""The data folder on a small file system of its own, which can be filled to the last block."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.observe.processes import ticks_since_boot

_SIZE = "96m"


@dataclass(kw_only=True)
class Disk:
    """`small`: False where nothing may be mounted; then it is never filled. `full_at`, `free_at`:
    when it was last so, in ticks after boot."""

    folder: Path
    small: bool
    full: bool = False
    full_at: int = 0
    free_at: int = 0

    @property
    def was_full(self) -> bool:
        """Now, or just before."""
        return self.full or self.free_at > ticks_since_boot() - 5 * os.sysconf("SC_CLK_TCK")

    @property
    def _filler(self) -> Path:
        return self.folder / "somebody-else"

    def fill(self) -> None:
        self.full, self.full_at = True, ticks_since_boot()
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
        self.full, self.free_at = False, ticks_since_boot()


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
