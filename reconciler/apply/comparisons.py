"""Compares files that seem to be bad with the hub, in the background, until it holds other ones.

A cached model is not asked for again, so that it serves with the hub down. But what was fetched
while somebody was still pushing it would then be blocked for ever.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import structlog

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.model_tasks import ModelTasks
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import XgenError
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import FilesDigest, ModelName

_log = structlog.get_logger("xgen.apply")

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
PARALLEL = 2
"""Listings at a time, of all models together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Files that seem to be bad, and what they were fetched for."""

    spec: ModelSpec
    digest: FilesDigest


class Comparisons:
    """One task a doubted model. What the hub holds instead counts when two looks agree on it.

    `wake`: called when files were given up, so that the new ones can be fetched.
    """

    def __init__(
        self,
        cache: ModelCache,
        *,
        wake: Callable[[], None],
        first_delay_seconds: float = FIRST_DELAY_SECONDS,
        longest_delay_seconds: float = LONGEST_DELAY_SECONDS,
    ) -> None:
        self._cache = cache
        self._wake = wake
        self._first_delay_seconds = first_delay_seconds
        self._longest_delay_seconds = longest_delay_seconds
        self._tasks = ModelTasks("compare", self._compare)
        self._slots = asyncio.Semaphore(PARALLEL)

    def doubt(self, doubts: Mapping[ModelName, Doubt]) -> None:
        """These models and no others are compared, from now on."""
        self._tasks.keep(doubts)

    def hurry(self, model: ModelName | None) -> None:
        """Look now, not after the pause: at one model's, or at all."""
        self._tasks.again(model)

    async def close(self) -> None:
        await self._tasks.close()

    async def _compare(self, model: ModelName, doubt: Doubt) -> None:
        structlog.contextvars.bind_contextvars(model=model)
        seen: FilesDigest | None = None
        delays = self._delays()
        while True:
            listed = await self._listed(doubt.spec)
            if listed not in (None, doubt.digest) and listed == seen:
                _log.info("the hub holds other files than those that are bad", digest=listed)
                self._cache.retire(doubt.spec, keep=listed)
                self._wake()
            is_new = listed not in (None, doubt.digest, seen)
            seen = listed
            await asyncio.sleep(self._first_delay_seconds if is_new else next(delays))

    def _delays(self) -> Iterator[float]:
        delay = self._first_delay_seconds
        while True:
            yield delay
            delay = min(delay * 2, self._longest_delay_seconds)

    async def _listed(self, spec: ModelSpec) -> FilesDigest | None:
        """None where the hub does not say."""
        found: list[FilesDigest | None] = []

        def look() -> None:
            found.append(self._cache.listed_digest(spec))

        try:
            async with self._slots:
                await in_daemon_thread(look, name=f"compare:{spec.source}")
        except XgenError as exc:
            _log.debug("bad files cannot be compared with the hub", cause=str(exc))
            return None
        return found[0]
