"""Listening for changes of one ConfigMap: a bell, whose every ring makes the source read.

known version ─▶ watch ─▶ an event ─▶ ring
                          it ends as it should ─▶ watch on, from where it was
                          410, as status or as event ─▶ ring; watch on from what is read then
                          cut, refused, silent ─▶ watch on from where it was; later and later again

Nothing that it hears counts in itself, so that nothing it misses does harm for longer than the
source's own interval.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from reconciler.errors import XgenError
from reconciler.source.kubernetes_address import ConfigMapAddress
from reconciler.source.kubernetes_api import KubernetesApi
from reconciler.source.kubernetes_failures import FORBIDDEN, GONE, ApiFailed

_log = structlog.get_logger("xgen.source")

_TOLD_FROM = 3
"""Failures in a row, of which an operator is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPace:
    """`watch_seconds`: of one watch, by chance down to four fifths of it. `grace_seconds`: after
    which one that should have ended is given up. `first_retry_seconds`: after one that failed, by
    chance within a half, doubled up to `last_retry_seconds`. `settled_seconds`: after which one
    that is silent counts as good."""

    watch_seconds: float = 300.0
    grace_seconds: float = 15.0
    first_retry_seconds: float = 1.0
    last_retry_seconds: float = 30.0
    settled_seconds: float = 10.0


class Bell:
    """Rings by `ring`. `follow` is told from which version on there is something to hear."""

    def __init__(
        self,
        api: KubernetesApi,
        address: ConfigMapAddress,
        pace: WatchPace,
        *,
        ring: Callable[[], None],
    ) -> None:
        self._api = api
        self._address = address
        self._pace = pace
        self._ring = ring
        self._version = ""
        self._known = asyncio.Event()
        self._listens = False
        self._settled = False
        self._failures = 0
        self._notice: str | None = None

    @property
    def notice(self) -> str | None:
        """Why changes are not heard of; None: they are, or that is not known yet."""
        return self._notice

    def follow(self, version: str) -> None:
        """What was read just now. One that listens knows better."""
        if not self._listens:
            self._version = version
            self._known.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._known.wait()
            wait = 0.0
            self._settled = False
            try:
                await self._listen()
            except XgenError as exc:
                wait = getattr(exc, "retry_after_seconds", None) or 0.0
                self._failed(exc)
            except Exception:  # noqa: BLE001  a task of its own: it must not end unseen
                _log.exception("the watch of the manifest failed unexpectedly")
                self._failed(ApiFailed("a fault of ours, which the log has"))
            else:
                if not self._settled:
                    self._failed(ApiFailed("each watch ends at once"))
            self._listens = False
            if self._failures:
                await asyncio.sleep(max(wait, self._pause_seconds()))

    async def _listen(self) -> None:
        """One watch, to its end."""
        pace = self._pace
        seconds = pace.watch_seconds * random.uniform(0.8, 1.0)
        changes = self._api.changes(
            self._address, self._version, seconds=seconds, grace_seconds=pace.grace_seconds
        )
        soon = asyncio.get_running_loop().call_later
        settling: asyncio.TimerHandle | None = None
        try:
            async with aclosing(changes):
                async for each in changes:
                    if settling is None:
                        settling = soon(pace.settled_seconds, self._settle)
                        self._opened()
                        continue
                    self._version = each.version
                    self._settle()
                    if each.changed:
                        self._ring()
        finally:
            if settling is not None:
                settling.cancel()

    def _opened(self) -> None:
        """After a failure it is read at once: what happened since may be past hearing."""
        self._listens = True
        if self._failures:
            self._ring()

    def _settle(self) -> None:
        self._settled = True
        self._failures = 0
        if self._notice is not None:
            self._notice = None
            self._ring()

    def _failed(self, exc: XgenError) -> None:
        self._failures += 1
        status = exc.status if isinstance(exc, ApiFailed) else None
        if status == GONE:
            self._known.clear()
            self._ring()
        elif status == FORBIDDEN or self._failures >= _TOLD_FROM:
            if self._notice is None:
                self._ring()
            self._notice = f"cannot watch {self._address.shown}: {exc}"

    def _pause_seconds(self) -> float:
        doubled = self._pace.first_retry_seconds * 2.0 ** min(self._failures - 1, 16)
        return min(doubled, self._pace.last_retry_seconds) * random.uniform(0.5, 1.5)
