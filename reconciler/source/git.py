"""A manifest in a git repository, asked for its newest commit now and then.

asked or due ─▶ ls-remote ─▶ as before? ─▶ nothing
                             moved? ─▶ counts at once: a commit is never half-written
                             away? ─▶ an error that stops nothing; later and later again
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import GitAddress
from reconciler.source.git_reader import GitRead, GitReader
from reconciler.source.snapshot import Snapshot

_MAX_PAUSE_SECONDS = 300.0
_JITTER = 0.1


class GitSource:
    """Reads `address`. `folder`: for git's scratch, ours alone.

    `interval_seconds`: between two looks, give or take a tenth, so that many nodes do not ask at
    the same moment; doubled up to five minutes while the repository cannot be reached.
    `patience_seconds`: after which a first look that goes on is told of. `now`: RFC 3339, for
    people: when it was reached last.
    """

    def __init__(
        self,
        address: GitAddress,
        access: GitAccess,
        folder: Path,
        *,
        interval_seconds: float = 30.0,
        patience_seconds: float = 3.0,
        now: Callable[[], str],
    ) -> None:
        self._shown = address.shown
        self._patience_seconds = patience_seconds
        self._reader = GitReader(address, access, folder)
        self._interval_seconds = interval_seconds
        self._now = now
        self._reached_at: str | None = None
        self._failures = 0
        self._hint = asyncio.Event()
        self._asked: list[asyncio.Event] = []

    @property
    def notices(self) -> tuple[str, ...]:
        """Nothing: what there is to say of git is an error, or the revision."""
        return ()

    def look_again(self) -> asyncio.Event:
        """Make `snapshots` ask the repository now.

        The event is set once a read that began after this call has been handed over.
        """
        asked = asyncio.Event()
        self._asked.append(asked)
        self._hint.set()
        return asked

    async def read(self) -> Snapshot:
        """Ask the repository now. Never raises for what the world is like."""
        read = await asyncio.to_thread(self._reader.read)
        if read.reached:
            self._failures = 0
            self._reached_at = self._now()
            return read.snapshot
        self._failures += 1
        return replace(read.snapshot, error=self._aged(read))

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """The state now, then each different one. Close it (`aclosing`) to end every git."""
        shown: Snapshot | None = None
        reading: asyncio.Task[Snapshot] | None = None
        try:
            while True:
                self._hint.clear()
                asked, self._asked = self._asked, []
                reading = asyncio.create_task(self.read(), name="read git")
                await asyncio.wait([reading], timeout=self._patience_seconds)
                if shown is None and not reading.done():
                    yield (shown := self._silent())
                snapshot = await reading
                if snapshot != shown:
                    shown = snapshot
                    yield snapshot
                for each in asked:
                    each.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.pause_seconds()):
                        await self._hint.wait()
        finally:
            self._reader.close()
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])

    def _silent(self) -> Snapshot:
        """Of the start: with it the last good version is in force, and is not waited for."""
        error = f"cannot read {self._shown}: it has not answered yet since the agent started"
        return Snapshot(location=self._shown, revision="", error=error)

    def pause_seconds(self) -> float:
        """Until the next look, by chance within a tenth."""
        pause = self._interval_seconds * 2.0 ** min(max(0, self._failures - 1), 16)
        longest = max(_MAX_PAUSE_SECONDS, self._interval_seconds)
        return min(pause, longest) * random.uniform(1 - _JITTER, 1 + _JITTER)

    def _aged(self, read: GitRead) -> str:
        """The same text each time, so that an outage is one event."""
        at = self._reached_at
        if at is None:
            return f"{read.snapshot.error}; it was not reached since the agent started"
        return f"{read.snapshot.error}; it was reached last at {at}"
