"""Hints that a source may have changed; what changed is found by reading.

Folders are watched, never files: a watch on a file goes blind after the first rename over it.
"""

import asyncio
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from watchfiles import Change, awatch

from reconciler.source.listing import counts

# At 50 ms an idle watch costs 0.2 % of a core; at 5 ms it is 0.9 %, for ever, on every node.
_STEP_MS = 50
_DEBOUNCE_MS = 50
_MAX_LINKS = 40

Folders = Mapping[str, frozenset[str] | None]
"""Folders to watch, with the names in them that matter; None: all."""


def folders_to_watch(path: Path) -> Folders:
    """Every folder that holds a link on the way to `path`, and the place where it ends.

    Where something is missing on the way, that is the nearest folder that exists. Blocking.
    """
    found: dict[str, set[str] | None] = {}
    end = _follow(os.path.abspath(path), found)
    if os.path.isdir(end):
        _follow(os.path.join(end, "..data"), found)
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
    """Sets `hint` when something moves in the folders that it follows.

    `failure`: why watching is not possible now, so that only polling is left; None otherwise.
    """

    def __init__(self, hint: asyncio.Event) -> None:
        self._hint = hint
        self._folders: Folders | None = None
        self._task: asyncio.Task[None] | None = None
        self.failure: str | None = None

    async def follow(self, folders: Folders) -> None:
        """Watch these folders from now on: what changes after this returns gives a hint."""
        alive = self._task is not None and not self._task.done()
        if alive and folders == self._folders:
            return
        await self.close()
        self._folders = folders
        self.failure = None
        self._task = asyncio.create_task(self._run(folders), name="watch manifest")
        await asyncio.sleep(0)  # the task's first step sets up the watch

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # unlike awaiting it, a cancellation of ours gets through

    async def _run(self, folders: Folders) -> None:
        def matters(_change: Change, path: str) -> bool:
            folder, name = os.path.split(path)
            names = folders.get(folder, frozenset())
            return path in folders or names is None or name in names

        changes = awatch(
            *folders,
            watch_filter=matters,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            recursive=False,
            ignore_permission_denied=False,  # True would hide every other error as well
        )
        try:
            async for _ in changes:
                self._hint.set()
        except Exception as exc:  # noqa: BLE001  # a task's boundary; polling goes on without it
            self.failure = str(exc)
