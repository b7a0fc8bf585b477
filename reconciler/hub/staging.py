"""The folder that an import downloads into: one import at a time, also of several processes."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.errors import Transient
from reconciler.file_lock import is_at, try_lock

_RETRY_SECONDS = 0.1


@contextmanager
def staging(
    folder: Path, patience_seconds: float | None, *, cancelled: Callable[[], bool]
) -> Iterator[int]:
    """Make the folder and hold it alone; gives the descriptor of the lock. Waits for others, so
    long (None: as long as it takes).

    What is in it stays when the block is left: the next try goes on with it.
    """
    deadline = None if patience_seconds is None else time.monotonic() + patience_seconds

    def given_up() -> bool:
        return cancelled() or (deadline is not None and time.monotonic() > deadline)

    fd = _taken(folder, given_up)
    try:
        yield fd
    finally:
        os.close(fd)


def discard(folder: Path) -> None:
    """Remove the folder with all that is in it. For whoever holds it."""
    shutil.rmtree(folder, ignore_errors=True)


def discard_unheld(folder: Path) -> None:
    """Remove the folder, unless another process is at work in it."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # it is not there
    try:
        if try_lock(fd):
            discard(folder)
    finally:
        os.close(fd)


def _taken(folder: Path, given_up: Callable[[], bool]) -> int:
    while True:
        fd = _opened(folder)
        is_ours = try_lock(fd)
        if is_ours and is_at(folder, fd):  # it goes with an import that is complete
            return fd
        os.close(fd)
        if is_ours:
            continue
        if given_up():
            raise Transient(
                f"cannot use {folder}: another import of the same is under way on this node"
            )
        time.sleep(_RETRY_SECONDS)


def _opened(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise Transient(f"cannot use {folder}: {exc.strerror}") from exc
