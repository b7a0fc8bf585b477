"""A manifest in a file or a directory: a ConfigMap mount, a git-sync link, or plain files.

event or poll ─▶ read all ─▶ as before? ─▶ nothing
                             a link was swapped? ─▶ counts at once
                             as it was in force at the start? ─▶ counts at once
                             plain files? ─▶ counts when two reads agree
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from types import MappingProxyType

import structlog

from reconciler.source.frozen_mount import frozen_mount
from reconciler.source.listing import Listing, agree, read_listing, without_unsettled
from reconciler.source.names import shown_name
from reconciler.source.snapshot import Snapshot
from reconciler.source.watching import Watcher, folders_to_watch

log = structlog.get_logger(__name__)

_MAX_READS = 8
_WATCH_TRIES = 2
"""A folder may be swapped between the look at the links and the watch."""


class DirectorySource:
    """Reads `path`, and watches it.

    `poll_seconds`: how long a change without an event (NFS, FUSE) may go unseen. `settle_seconds`:
    how far apart two reads of plain files must agree. `watch` False: poll only. `settled`: files
    that an earlier agent took up: the very same again are not half-written.
    """

    def __init__(
        self,
        path: Path,
        *,
        poll_seconds: float = 5.0,
        settle_seconds: float = 0.25,
        watch: bool = True,
        settled: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._path = Path(os.path.abspath(path))
        self._poll_seconds = poll_seconds
        self._settle_seconds = settle_seconds
        self._watch = watch
        self._settled = settled
        self._last: Listing | None = None
        self._notices: dict[str, str] = {}
        self._hint = asyncio.Event()
        self._asked: list[asyncio.Event] = []

    @property
    def notices(self) -> tuple[str, ...]:
        """What an operator should know of how this source is read; not errors."""
        return tuple(self._notices.values())

    def look_again(self) -> asyncio.Event:
        """Make `snapshots` read now, without an event or its next poll.

        The event is set once a read that began after this call has been handed over.
        """
        asked = asyncio.Event()
        self._asked.append(asked)
        self._hint.set()
        return asked

    async def read(self) -> Snapshot:
        """Read everything now; plain files are read until two reads agree.

        A file that goes on changing is an error in the snapshot. Never raises for what is on disk.
        """
        before = await asyncio.to_thread(read_listing, self._path)
        listing = before
        for _ in range(_MAX_READS):
            if self._counts_at_once(listing):
                break
            await asyncio.sleep(self._settle_seconds)
            before, listing = listing, await asyncio.to_thread(read_listing, self._path)
            if agree(before, listing):
                break
        else:
            unsettled = without_unsettled(before, listing)
            listing = Listing(snapshot=unsettled, through=listing.through)
        self._last = listing
        return listing.snapshot

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """The state now, then each different one. Close it (`aclosing`) to end the watch.

        The same one comes again when `notices` are others.
        """
        hint = self._hint
        watcher = Watcher(hint)
        shown: Snapshot | None = None
        told: tuple[str, ...] = ()
        await self._look_at_mount()
        try:
            while True:
                hint.clear()
                asked, self._asked = self._asked, []
                if self._watch:
                    await self._follow(watcher)
                snapshot = await self.read()
                if shown is None or snapshot != shown or told != self.notices:
                    shown = snapshot if snapshot != shown else shown
                    told = self.notices
                    yield shown
                for each in asked:
                    each.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await hint.wait()
        finally:
            await watcher.close()

    def _counts_at_once(self, listing: Listing) -> bool:
        last = self._last
        if listing.atomic:
            return True
        if last is None:
            read = {file.name: file.content for file in listing.snapshot.files}
            return bool(read) and read == self._settled
        swapped = None not in (last.through, listing.through) and last.through != listing.through
        return swapped or listing.snapshot == last.snapshot

    async def _follow(self, watcher: Watcher) -> None:
        """Watch the folders as they are now. What fails is tried again with each read.

        Where they are swapped faster than they can be watched, the next read is at once: with the
        poll alone, the last swap would be seen late.
        """
        tried = folders = await asyncio.to_thread(folders_to_watch, self._path)
        for _ in range(_WATCH_TRIES):
            await watcher.follow(folders)
            if watcher.failure is None:
                self._notices.pop("watch", None)
                return
            tried, folders = folders, await asyncio.to_thread(folders_to_watch, self._path)
        if folders != tried:
            self._hint.set()
            return
        if "watch" not in self._notices:
            log.warning(
                "manifest is polled, not watched", path=str(self._path), cause=watcher.failure
            )
        self._notices["watch"] = (
            f"cannot watch {shown_name(str(self._path))}: {watcher.failure}; "
            f"reading it every {self._poll_seconds:g} s"
        )

    async def _look_at_mount(self) -> None:
        try:
            mounts = await asyncio.to_thread(Path("/proc/self/mountinfo").read_text)
        except OSError:
            return
        point = frozen_mount(mounts, str(self._path))
        if point is not None:
            self._notices["mount"] = (
                f"{point} is a subPath mount, which Kubernetes never updates; mount the volume"
            )
            log.warning("manifest is on a subPath mount and will never change", mount=point)
