"""Hints that a source may have changed; what changed is found by reading.

Folders are watched, never files: a watch on a file goes blind after the first rename over it.
"""

import asyncio
import math
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from reconciler.source.inotify import Inotify
from reconciler.source.listing import DATA, counts

PAUSE_SECONDS = 0.05
"""Between two hints: a file that is written all the time is not read all the time."""
_MAX_LINKS = 40

Folders = Mapping[str, frozenset[str] | None]
"""Folders to watch, with the names in them that matter; None: those of manifests."""


def folders_to_watch(path: Path) -> Folders:
    """Every folder that holds a link on the way to `path`, and the place where it ends.

    Where something is missing on the way, that is the nearest folder that exists. Blocking.
    """
    found: dict[str, set[str] | None] = {}
    end = _follow(os.path.abspath(path), found)
    if os.path.isdir(end):
        _follow(os.path.join(end, DATA), found)
        _follow_files(end, found)
        found[end] = None
    return {
        folder: None if names is None else frozenset(names)
        for folder, names in found.items()
        if os.access(folder, os.R_OK)
    }


def _follow(path: str, found: dict[str, set[str] | None]) -> str:
    """Walk `path` link by link, and note folder and name of each link and of the end."""
    current = "/"
    pending = deque(part for part in path.split("/") if part)
    links = 0
    while pending:
        part = pending.popleft()
        if part in (".", ".."):
            current = current if part == "." else os.path.dirname(current)
            continue
        here = os.path.join(current, part)
        try:
            target = os.readlink(here) if links < _MAX_LINKS else None
        except OSError:
            target = None
        if target is not None or not pending or not os.path.lexists(here):
            names = found.setdefault(current, set())
            if names is not None:
                names.add(part)
        if target is None:
            if not os.path.lexists(here):
                return here
            current = here
            continue
        links += 1
        pending.extendleft(reversed([piece for piece in target.split("/") if piece]))
        current = "/" if target.startswith("/") else current
    return current


def _follow_files(folder: str, found: dict[str, set[str] | None]) -> None:
    """A file that is itself a link changes elsewhere (llama-swap#671)."""
    try:
        with os.scandir(folder) as entries:
            links = [entry.path for entry in entries if counts(entry.name) and entry.is_symlink()]
    except OSError:
        return
    for link in links:
        _follow(link, found)


class Watcher:
    """Sets `hint` when something moves in the folders that it follows: at once, or for one change
    right after the other `PAUSE_SECONDS` after the hint before.

    `failure`: why watching is not possible now, so that only polling is left; None otherwise.
    """

    def __init__(self, hint: asyncio.Event) -> None:
        self._hint = hint
        self._folders: Folders = {}
        self._inotify: Inotify | None = None
        self._hinted_at = -math.inf
        self._due: asyncio.TimerHandle | None = None
        self.failure: str | None = None

    async def follow(self, folders: Folders) -> None:
        """Watch these folders from now on: what changes after this returns gives a hint."""
        if self._inotify is not None and folders == self._folders:
            return
        self._forget_due()
        self._folders = folders
        self.failure = None
        try:
            if self._inotify is None:
                self._inotify = Inotify()
                asyncio.get_running_loop().add_reader(self._inotify.fd, self._take)
            self._inotify.watch(folders)
        except OSError as exc:
            self.failure = exc.strerror
            await self.close()

    async def close(self) -> None:
        inotify, self._inotify = self._inotify, None
        self._forget_due()
        if inotify is not None:
            asyncio.get_running_loop().remove_reader(inotify.fd)
            await asyncio.to_thread(inotify.close)

    def _forget_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _take(self) -> None:
        assert self._inotify is not None
        moved = list(self._inotify.take())
        if any(self._matters(folder, name) for folder, name in moved):
            self._tell()
        if any(name is None for _, name in moved):
            self._folders = {}  # one of them is not watched any more: `follow` begins anew

    def _matters(self, folder: str | None, name: str | None) -> bool:
        if not folder or not name:
            return True
        names = self._folders.get(folder)
        return name in names if names is not None else name == DATA or counts(name)

    def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        if self._due is not None:
            return
        if (pause := self._hinted_at + PAUSE_SECONDS - loop.time()) > 0:
            self._due = loop.call_later(pause, self._tell_now)
        else:
            self._tell_now()

    def _tell_now(self) -> None:
        self._due = None
        self._hinted_at = asyncio.get_running_loop().time()
        self._hint.set()
