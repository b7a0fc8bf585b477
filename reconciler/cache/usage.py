"""How much of the disk the cache takes, measured when it changes and not when it is asked for."""

import os
import time
from threading import Lock

from reconciler.cache.inventory import files_of
from reconciler.cache.layout import Layout

KEEP_UP_SECONDS = 1.0


class Usage:
    """Bytes as `du` counts them: of the revisions, what was taken in and kept, and partial files.

    Files that revisions of one prefix share are counted once. Measuring blocks; any thread may.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._prefixes: dict[str, int] = {}
        self._partials = 0
        self._measured_at = 0.0
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        """As measured last. Reads no disk."""
        with self._lock:
            return self._partials + sum(self._prefixes.values())

    def measure(self) -> None:
        """Everything. One `stat` a file."""
        folders = (self._layout.models / ".rev").glob("*/*")
        found = {
            f"{folder.parent.name}/{folder.name}": _bytes_below(os.fspath(folder))
            for folder in folders
            if folder.is_dir()
        }
        with self._lock:
            self._prefixes = found
        self._measure_partials()

    def measure_prefix(self, prefix: str) -> None:
        """What a fetch of this prefix has changed."""
        found = _bytes_below(os.fspath(self._layout.revisions(prefix)))
        with self._lock:
            self._prefixes[prefix] = found
        self._measure_partials()

    def keep_up(self, prefix: str) -> None:
        """The same while it is fetched, at most once in `KEEP_UP_SECONDS`."""
        if time.monotonic() - self._measured_at >= KEEP_UP_SECONDS:
            self.measure_prefix(prefix)

    def _measure_partials(self) -> None:
        found = _bytes_below(os.fspath(self._layout.partials))
        with self._lock:
            self._partials = found
            self._measured_at = time.monotonic()


def _bytes_below(folder: str) -> int:
    """What vanishes meanwhile, or may not be read, is not counted."""
    return sum({file.inode: file.size_bytes for file in files_of(folder)}.values())
