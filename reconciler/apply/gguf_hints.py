"""Asks the hub, in the background, for GGUF files of models that nothing here can run otherwise."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

import structlog

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.model_tasks import ModelTasks
from reconciler.cache.beside import gguf_beside
from reconciler.cache.store import Store
from reconciler.errors import XgenError
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import ModelName

_log = structlog.get_logger("xgen.apply")

BETWEEN_SECONDS = 600.0
AT_ONCE = 2
"""Listings, of all models together."""


class GgufHints:
    """One task a model; none without a hub. `wake`: there is news. While the hub is away nothing is
    said."""

    def __init__(
        self,
        store: Store | None,
        *,
        wake: Callable[[], None],
        between_seconds: float = BETWEEN_SECONDS,
    ) -> None:
        self._store = store
        self._wake = wake
        self._between_seconds = between_seconds
        self._tasks = ModelTasks("gguf-hints", self._ask)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._told: dict[ModelName, str] = {}
        self.told: Mapping[ModelName, str] = MappingProxyType(self._told)
        """What would help, as a clause; it changes as the hub does."""

    def watch(self, models: Mapping[ModelName, ModelSpec]) -> None:
        """These models and no others, from now on."""
        for gone in self._told.keys() - models.keys():
            del self._told[gone]
        self._tasks.keep(models)

    async def close(self) -> None:
        await self._tasks.close()

    async def _ask(self, model: ModelName, spec: ModelSpec) -> None:
        structlog.contextvars.bind_contextvars(model=model)
        if self._store is None:
            return
        self._told.pop(model, None)
        while True:
            prefix = await self._prefix(self._store, spec)
            told = None if prefix is None else f"the hub holds {prefix}: name it as `fallback:`"
            if told != self._told.get(model):
                self._told.pop(model, None)
                if told is not None:
                    self._told[model] = told
                self._wake()
            await asyncio.sleep(self._between_seconds)

    async def _prefix(self, store: Store, spec: ModelSpec) -> str | None:
        found: list[str | None] = []

        def look() -> None:
            found.append(gguf_beside(store, spec))

        try:
            async with self._slots:
                await in_daemon_thread(look, name=f"gguf-hints:{spec.source}")
        except XgenError as exc:
            _log.debug("the hub does not say whether it holds a GGUF", cause=str(exc))
            return None
        return found[0]
