"""What every source of manifests can do."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol

from reconciler.source.snapshot import Snapshot


class ManifestSource(Protocol):
    """A directory, a git repository, or a ConfigMap."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What an operator should know of how this source is read; not errors."""

    def look_again(self) -> asyncio.Event:
        """Make `snapshots` read now.

        The event is set once a read that began after this call has been handed over.
        """

    async def read(self) -> Snapshot:
        """Read everything now. Never raises for what the world is like."""

    def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """The state now, then each different one. Close it (`aclosing`) to end the watch."""
