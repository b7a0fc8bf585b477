"""A manifest in a ConfigMap, by the Kubernetes API.

rung, asked or due ─▶ list ─▶ as before? ─▶ nothing
                              another?   ─▶ counts at once: an object is never half-written
                              not there, or away? ─▶ an error that stops nothing
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from reconciler.errors import Rejected, Transient
from reconciler.source.asking import Answer, Asking, Pace
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import ConfigMapAddress
from reconciler.source.kubernetes_api import KubernetesApi
from reconciler.source.kubernetes_events import write_event
from reconciler.source.kubernetes_failures import FORBIDDEN, ApiFailed
from reconciler.source.kubernetes_reader import ConfigMapReader
from reconciler.source.kubernetes_watch import Bell, WatchPace
from reconciler.source.manifest_source import ManifestNews
from reconciler.source.snapshot import Snapshot

PACE = Pace(interval_seconds=60.0, first_retry_seconds=1.0, last_retry_seconds=30.0)
"""What is missed by listening is seen within a minute."""


class ConfigMapSource:
    """Reads the ConfigMap at `address`, and listens for its changes. `now`: RFC 3339, for people:
    when it was reached last."""

    def __init__(
        self,
        address: ConfigMapAddress,
        access: KubernetesAccess,
        *,
        now: Callable[[], str],
        pace: Pace = PACE,
        watch: WatchPace = WatchPace(),  # noqa: B008 - frozen
        answer_seconds: float = 30.0,
    ) -> None:
        self._address = address
        self._api = KubernetesApi(access, answer_seconds=answer_seconds)
        self._reader = ConfigMapReader(self._api, address)
        self._pace = pace
        self._asking = Asking(address.shown, self._ask, pace, now=now, notices=lambda: self.notices)
        self._bell = Bell(self._api, address, watch, ring=self._asking.hint)

    @property
    def notices(self) -> tuple[str, ...]:
        """What an operator should know of how this source is read; not errors."""
        notice = self._bell.notice
        if notice is None:
            return ()
        return (f"{notice}; reading it every {self._pace.interval_seconds:g} s",)

    def look_again(self) -> asyncio.Event:
        """Make `snapshots` ask the API now.

        The event is set once a read that began after this call has been handed over.
        """
        return self._asking.look_again()

    async def read(self) -> Snapshot:
        """Ask the API now, within `snapshots`. Never raises for what the world is like."""
        return await self._asking.read()

    async def tell(self, news: ManifestNews) -> None:
        """By an Event on the ConfigMap, within `snapshots`. Raises Transient, or Rejected where our
        account may not write any."""
        found = self._reader.found
        if found is None or found.object is None:
            return
        try:
            await write_event(self._api, self._address, found.object.metadata, news)
        except ApiFailed as exc:
            what = f"cannot write an Event on {self._address.shown}: {exc}"
            if exc.status == FORBIDDEN:
                raise Rejected(what) from exc
            raise Transient(what, retry_after_seconds=exc.retry_after_seconds) from exc

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """The state now, then each different one. Close it (`aclosing`) to end the connections."""
        listening = asyncio.create_task(self._bell.run(), name="watch ConfigMap")
        try:
            async with aclosing(self._asking.snapshots()) as snapshots:
                async for snapshot in snapshots:
                    yield snapshot
        finally:
            listening.cancel()
            await asyncio.wait([listening])
            await self._api.aclose()

    async def _ask(self) -> Answer:
        answer = await self._reader.read()
        if answer.reached and self._reader.found is not None:
            self._bell.follow(self._reader.found.version)
        return answer
