"""Bringing one model's files into the cache, so that it can be given up at any moment."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.meter import Meter
from reconciler.apply.speed import told
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Transient
from reconciler.plan.desired import DesiredModel
from reconciler.status import Doing, Progress


class Fetch:
    """A download, before, while and after it runs. `moved`: called on the event loop, now and then,
    when it has come further.

    `moved_bytes`: of those done, what was not here before; what came twice counts once.
    """

    def __init__(
        self, model: DesiredModel, cache: ModelCache, *, moved: Callable[[], None]
    ) -> None:
        self.moved_bytes = 0
        self._here_before: int | None = None
        self._meter = Meter(moved)
        self._model = model
        self._cache = cache
        self._given_up = threading.Event()
        self._begun = False
        self._task: asyncio.Task[object] | None = None

    @property
    def given_up(self) -> bool:
        return self._given_up.is_set()

    @property
    def detail(self) -> str:
        """How far it is, for operators."""
        progress = self.progress
        return told(progress) if progress else ""

    @property
    def progress(self) -> Progress | None:
        return self._meter.progress

    def give_up(self) -> None:
        """It notices at its next chunk; one that still waits for a slot ends at once."""
        self._given_up.set()
        if not self._begun and self._task is not None:
            self._task.cancel()

    async def run(self, slots: asyncio.Semaphore) -> bool:
        """Fetch, in a thread of its own. False: it was given up. Raises Transient or Rejected."""
        self._task = asyncio.current_task()
        limit = self._model.timeouts.download
        try:
            async with asyncio.timeout(limit), slots:
                self._begun = True
                await in_daemon_thread(self._work, name=f"fetch:{self._model.name}")
        except TimeoutError:
            self._given_up.set()
            raise Transient(
                f"cannot fetch {self._model.spec.source}: not done within {limit:.0f} s"
            ) from None
        except Transient:
            if self.given_up:
                return False
            raise
        return True

    def _work(self) -> None:
        spec = self._model.spec
        self._cache.fetch(
            spec,
            on_progress=self._note,
            on_check=partial(self._meter.note, Doing.CHECK),
            on_import=partial(self._meter.note, Doing.IMPORT),
            cancelled=self._given_up.is_set,
        )
        if self._cache.lookup(spec) is None:  # else it would be fetched for ever
            raise Transient(f"cannot use {spec.source}: its files were fetched and are not found")

    def _note(self, done: int, total: int) -> None:
        if self._here_before is None:
            self._here_before = done
        self.moved_bytes = max(self.moved_bytes, done - self._here_before)
        self._meter.note(Doing.FETCH, done, total)
