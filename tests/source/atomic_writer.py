"""Writes a volume as kubelet's AtomicWriter does, and a link as git-sync does.

Run as a program it writes ever new revisions, as fast as it can, until it is told to stop:
`python -m tests.source.atomic_writer configmap|git-sync FOLDER FILES`. With `bursts` it writes as
many as each line of its stdin says, and answers with the number of the last one.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path


class ConfigMapVolume:
    """A folder with `..data -> ..TIMESTAMP` and `key -> ..data/key`.

    `links_first`: new keys get their links before the swap, as older kubelets do it. `mode`,
    `group`: of the files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        links_first: bool = False,
        mode: int = 0o644,
        group: int | None = None,
    ) -> None:
        self.folder = folder
        self._links_first = links_first
        self._mode = mode
        self._group = group
        self._generation = 0

    def write(self, files: Mapping[str, str]) -> None:
        self._generation += 1
        self.folder.mkdir(exist_ok=True)
        old = self.folder / "..data"
        old_folder = self.folder / os.readlink(old) if old.is_symlink() else None
        new_folder = self.folder / f"..2026_11_29_10_00_00.{self._generation}"
        new_folder.mkdir()
        for name, text in files.items():
            (new_folder / name).write_text(text)
            (new_folder / name).chmod(self._mode)
            if self._group is not None:
                os.chown(new_folder / name, -1, self._group)
        if self._links_first:
            self._link(files)
        (self.folder / "..data_tmp").symlink_to(new_folder.name)
        os.replace(self.folder / "..data_tmp", old)
        self._link(files)
        for link in self.folder.iterdir():
            if link.is_symlink() and link.name not in files and not link.name.startswith(".."):
                link.unlink()
        if old_folder is not None:
            shutil.rmtree(old_folder)

    def _link(self, files: Mapping[str, str]) -> None:
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


class GitSyncLink:
    """`folder/link -> .worktrees/HASH`, swapped whole; the old worktree is removed at once."""

    def __init__(self, folder: Path) -> None:
        self.link = folder / "current"
        self._generation = 0

    def write(self, files: Mapping[str, str]) -> None:
        self._generation += 1
        worktree = self.link.parent / ".worktrees" / f"{self._generation:040x}"
        worktree.mkdir(parents=True)
        for name, text in files.items():
            (worktree / name).write_text(text)
        old = self.link.parent / os.readlink(self.link) if self.link.is_symlink() else None
        temporary = self.link.with_name("current.tmp")
        temporary.symlink_to(worktree.relative_to(self.link.parent))
        os.replace(temporary, self.link)
        if old is not None:
            shutil.rmtree(old)


def _write_for_ever(kind: str, folder: Path, count: int) -> None:
    volume = ConfigMapVolume(folder) if kind == "configmap" else GitSyncLink(folder)
    generation = 0
    while True:
        generation += 1
        volume.write({f"{index:02}.yaml": f"{generation}\n" for index in range(count)})
        if generation == 1:
            print("ready", flush=True)


def _write_bursts(folder: Path, count: int) -> None:
    """Keys come and go: the number of files differs from each to the next."""
    volume = ConfigMapVolume(folder, links_first=True)
    number = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            number += 1
            files = range(1 + number % count)
            volume.write({f"{index:02}.yaml": f"{number} of {len(files)}\n" for index in files})
        print(number, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "bursts":
        _write_bursts(Path(sys.argv[2]), int(sys.argv[3]))
        sys.exit()
    _write_for_ever(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
