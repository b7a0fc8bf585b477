"""Looks, slowly and in the background, whether the hub holds other files than the damaged ones.

What was damaged three times is not fetched again (R7); a listing tells when it has been replaced.
"""

import asyncio
import random
from collections.abc import Callable, Mapping

import structlog

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.model_tasks import ModelTasks, pause
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import XgenError
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import ModelName

_log = structlog.get_logger("xgen.apply")

BETWEEN_SECONDS = 600.0
AT_ONCE = 2
"""Listings, of all models together."""


class Mendings:
    """One task a blocked model. `wake`: something was mended."""

    def __init__(
        self,
        cache: ModelCache,
        *,
        wake: Callable[[], None],
        between_seconds: float = BETWEEN_SECONDS,
    ) -> None:
        self._cache = cache
        self._wake = wake
        self._between_seconds = between_seconds
        self._tasks = ModelTasks("mendings", self._watch)
        self._look_now: dict[ModelName, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._mended: set[ModelName] = set()

    def watch(self, blocked: Mapping[ModelName, ModelSpec]) -> None:
        """These models and no others, from now on."""
        self._tasks.keep(blocked)

    def hurry(self, model: ModelName | None) -> None:
        """Look now, not after the pause: at one model's, or at all."""
        for name in tuple(self._look_now) if model is None else (model,):
            if name in self._look_now:
                self._look_now[name].set()

    def try_anew(self, spec: ModelSpec) -> None:
        """Let the next fetch for a spec bring the damaged files again."""
        self._cache.try_anew(spec)

    def take_mended(self) -> frozenset[ModelName]:
        """Those whose files the hub has replaced since the last call."""
        mended = frozenset(self._mended)
        self._mended.clear()
        return mended

    async def close(self) -> None:
        await self._tasks.close()

    async def _watch(self, model: ModelName, spec: ModelSpec) -> None:
        structlog.contextvars.bind_contextvars(model=model)
        look_now = self._look_now[model] = asyncio.Event()
        try:
            while True:
                await pause(self._between_seconds * random.uniform(0.8, 1.2), look_now)
                if not await self._is_still_damaged(spec):
                    self._mended.add(model)
                    self._wake()
        finally:
            if self._look_now.get(model) is look_now:
                del self._look_now[model]

    async def _is_still_damaged(self, spec: ModelSpec) -> bool:
        """True also where the hub does not say."""
        found: list[bool] = []

        def look() -> None:
            found.append(self._cache.is_still_damaged(spec))

        try:
            async with self._slots:
                await in_daemon_thread(look, name=f"mendings:{spec.source}")
        except XgenError as exc:
            _log.debug("damaged files cannot be compared with the hub", cause=str(exc))
            return True
        return found[0]
