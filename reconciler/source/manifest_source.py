"""What every source of manifests can do."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestNews:
    """What became of a manifest on `node`. `reason`: one CamelCase word. `time`: RFC 3339, UTC."""

    node: str
    time: str
    bad: bool
    reason: str
    message: str


@runtime_checkable
class ToldSource(Protocol):
    """A source whose editors look at it where it is, and can be told there."""

    async def tell(self, news: ManifestNews) -> None:
        """Raises Transient, or Rejected where it may not be."""
