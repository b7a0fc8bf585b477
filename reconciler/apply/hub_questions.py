"""Asks the hub, in the background, what has to be known of models whose files are not here."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import structlog

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.model_tasks import ModelTasks, pause
from reconciler.cache.store import Store
from reconciler.errors import XgenError
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import ModelName

_log = structlog.get_logger("xgen.apply")

BETWEEN_SECONDS = 600.0
AT_ONCE = 2
"""Questions, of all models together."""

T = TypeVar("T")


class HubQuestions(Generic[T]):
    """One task a model. `ask` blocks, and raises as the store does; None: there is nothing to tell.

    `kind`: for names of tasks. `silence`: what is told while the hub is away, or without a hub.
    `wake`: there is news.
    """

    def __init__(
        self,
        kind: str,
        store: Store | None,
        ask: Callable[[Store, ModelSpec], T | None],
        *,
        silence: T | None = None,
        wake: Callable[[], None],
        between_seconds: float = BETWEEN_SECONDS,
    ) -> None:
        self._kind = kind
        self._store = store
        self._question = ask
        self._silence = silence
        self._wake = wake
        self._between_seconds = between_seconds
        self._tasks = ModelTasks(kind, self._ask)
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._again = asyncio.Event()
        self._hurries = 0
        self._told: dict[ModelName, T] = {}
        self.told: Mapping[ModelName, T] = MappingProxyType(self._told)
        """It changes as the hub does."""

    def watch(self, models: Mapping[ModelName, ModelSpec]) -> None:
        """These models and no others, from now on."""
        for gone in self._told.keys() - models.keys():
            del self._told[gone]
        self._tasks.keep(models)

    def ask_once(self, spec: ModelSpec) -> T | None:
        """What would be told of it. Blocking; kept by nobody."""
        try:
            return self._question(self._store, spec) if self._store else self._silence
        except XgenError:
            return self._silence

    def hurry(self) -> None:
        """Ask again now: somebody says that the hub has changed."""
        self._hurries += 1
        self._again.set()

    async def close(self) -> None:
        await self._tasks.close()

    async def _ask(self, model: ModelName, spec: ModelSpec) -> None:
        structlog.contextvars.bind_contextvars(model=model)
        self._told.pop(model, None)
        while True:
            hurries = self._hurries
            told = await self._answer(spec)
            if told != self._told.get(model):
                self._told.pop(model, None)
                if told is not None:
                    self._told[model] = told
                self._wake()
            if self._store is None:
                return
            if hurries == self._hurries:  # else it was asked before the hub had changed
                await pause(self._between_seconds, self._again)

    async def _answer(self, spec: ModelSpec) -> T | None:
        store, found = self._store, [self._silence]
        if store is None:
            return self._silence

        def look() -> None:
            found.append(self._question(store, spec))

        try:
            async with self._slots:
                await in_daemon_thread(look, name=f"{self._kind}:{spec.source}")
        except XgenError as exc:
            _log.debug("the hub does not say", question=self._kind, cause=str(exc))
        return found[-1]
