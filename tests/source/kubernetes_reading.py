"""Reading a ConfigMap of the tests' server, snapshot by snapshot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from reconciler.source.asking import Pace
from reconciler.source.kubernetes import ConfigMapSource
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import parse_config_map
from reconciler.source.kubernetes_watch import WatchPace
from reconciler.source.snapshot import Snapshot
from tests.source.kubernetes_server import Server
from tests.waiting import wait_until

HOUR = 3600.0
SHOWN = "configmap://models/models"


def source_of(
    access: KubernetesAccess,
    *,
    interval: float = HOUR,
    watch: float = HOUR,
    grace: float = HOUR,
    patience: float = HOUR,
) -> ConfigMapSource:
    """By default only what it hears makes it look, and it tries again soon."""
    return ConfigMapSource(
        parse_config_map(SHOWN),
        access,
        now=lambda: "2026-01-02T03:04:05Z",
        pace=Pace(
            interval_seconds=interval,
            first_retry_seconds=0.02,
            last_retry_seconds=0.1,
            patience_seconds=patience,
        ),
        watch=WatchPace(
            watch_seconds=watch,
            grace_seconds=grace,
            first_retry_seconds=0.02,
            last_retry_seconds=0.1,
            settled_seconds=0.1,
        ),
        answer_seconds=30.0,
    )


class Reader:
    """Takes snapshots one by one, each within a deadline."""

    def __init__(self, snapshots: AsyncIterator[Snapshot]) -> None:
        self._snapshots = snapshots

    async def next(self) -> Snapshot:
        async with asyncio.timeout(30):
            return await anext(self._snapshots)

    async def until(self, accept: Callable[[Snapshot], bool]) -> Snapshot:
        while not accept(snapshot := await self.next()):
            pass
        return snapshot

    async def until_texts(self, *wanted: str) -> Snapshot:
        return await self.until(lambda it: it.error is None and texts(it) == [*wanted])

    async def until_error(self, part: str) -> Snapshot:
        return await self.until(lambda it: part in (it.error or ""))


@asynccontextmanager
async def reading(source: ConfigMapSource) -> AsyncIterator[Reader]:
    async with aclosing(source.snapshots()) as snapshots:
        yield Reader(snapshots)


def texts(snapshot: Snapshot) -> list[str]:
    assert snapshot.error is None
    return [(file.content or b"?").decode() for file in snapshot.files]


async def listening(server: Server, count: int = 1) -> None:
    await asyncio.to_thread(wait_until, lambda: server.watching == count, what="a watch")
