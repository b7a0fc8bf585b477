"""A manifest in a git repository, asked for its newest commit now and then.

asked or due ─▶ ls-remote ─▶ as before? ─▶ nothing
                             moved? ─▶ counts at once: a commit is never half-written
                             away? ─▶ an error that stops nothing; later and later again
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

from reconciler.source.asking import Answer, Asking, Pace
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import GitAddress
from reconciler.source.git_reader import GitReader
from reconciler.source.snapshot import Snapshot


class GitSource:
    """Reads `address`. `folder`: for git's scratch, ours alone.

    `interval_seconds`: between two looks, give or take a tenth; doubled up to five minutes while
    the repository cannot be reached. `patience_seconds`: after which a first look that goes on is
    told of. `now`: RFC 3339, for people: when it was reached last.
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
        self._reader = GitReader(address, access, folder)
        pace = Pace(
            interval_seconds=interval_seconds,
            first_retry_seconds=interval_seconds,
            patience_seconds=patience_seconds,
        )
        self._asking = Asking(address.shown, self._ask, pace, now=now)

    @property
    def notices(self) -> tuple[str, ...]:
        """Nothing: what there is to say of git is an error, or the revision."""
        return ()

    def look_again(self) -> asyncio.Event:
        """Make `snapshots` ask the repository now.

        The event is set once a read that began after this call has been handed over.
        """
        return self._asking.look_again()

    async def read(self) -> Snapshot:
        """Ask the repository now. Never raises for what the world is like."""
        return await self._asking.read()

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """The state now, then each different one. Close it (`aclosing`) to end every git."""
        async with aclosing(self._asking.snapshots()) as snapshots:
            try:
                async for snapshot in snapshots:
                    yield snapshot
            finally:
                self._reader.close()  # first: a read that is under way ends by it

    def pause_seconds(self) -> float:
        """Until the next look, by chance within a tenth."""
        return self._asking.pause_seconds()

    async def _ask(self) -> Answer:
        return await asyncio.to_thread(self._reader.read)
