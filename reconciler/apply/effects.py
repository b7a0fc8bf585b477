"""Performs the plan's actions: one task an effect, at most one effect a model (R6).

Every effect ends in an outcome and a wake-up of the loop, whatever happens to it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import structlog

from reconciler.apply.backends import Backends, BackendView
from reconciler.apply.fetch import Fetch
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched, Outcome
from reconciler.apply.secret_values import secret_values
from reconciler.apply.shortage import is_shortage
from reconciler.apply.stop import Recall, Stopper
from reconciler.backend.choice import Choice
from reconciler.backend.engines import Engines
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Bug, Damaged, NoRoom, Rejected, Transient, XgenError
from reconciler.plan.actions import (
    AbortFetch,
    Action,
    FetchFiles,
    KeepBackend,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.desired import DesiredModel, Timeouts
from reconciler.plan.ids import FilesDigest, GpuUuid, ModelName, Nonce, SpecHash
from reconciler.plan.observed import EffectKind, FilesCached, InFlight
from reconciler.status import Progress

_log = structlog.get_logger("xgen.apply")

PARALLEL_FETCHES = 4
"""Downloads at a time, of all models together."""
ABORT_SECONDS = 2.0
"""For a download to notice that it was given up, before the agent ends without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the loop knows of a model when it dispatches an action on it."""

    desired: DesiredModel
    files: FilesCached | None
    choice: Choice | None


@dataclass(slots=True, kw_only=True)
class _Running:
    """`fetch` is set for a download, `nonce`, `pid` and `cause` for a stop, `recall` for one that
    can be taken back; what the files are, `gpus` and their share for a start."""

    kind: EffectKind
    spec_hash: SpecHash
    files_digest: FilesDigest | None = None
    fetch: Fetch | None = None
    nonce: Nonce | None = None
    pid: int | None = None
    cause: str = ""
    recall: Recall | None = None
    gpus: tuple[GpuUuid, ...] = ()
    gpu_share: float | None = None
    since: float = 0.0
    task: asyncio.Task[None] | None = None

    @property
    def aborting(self) -> bool:
        given_up = self.fetch is not None and self.fetch.given_up
        return given_up or (self.recall is not None and self.recall.called.is_set())


class Effects:
    """The effects under way, as an async context manager.

    Leaving it waits for them, but for downloads that hang.
    """

    def __init__(
        self,
        *,
        cache: ModelCache,
        backends: Backends,
        engines: Engines,
        stopper: Stopper,
        clock: Callable[[], float],
        wake: Callable[[], None],
        environment: Mapping[str, str],
    ) -> None:
        self._cache = cache
        self._backends = backends
        self._engines = engines
        self._stopper = stopper
        self._clock = clock
        self._wake = wake
        self._environment = environment
        self._running: dict[ModelName, _Running] = {}
        self._outcomes: list[Outcome] = []
        self._tasks = asyncio.TaskGroup()
        self._fetch_slots = asyncio.Semaphore(PARALLEL_FETCHES)
        self._free = asyncio.Event()
        self._free.set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort_fetches()
        if fetches := self._tasks_of(EffectKind.FETCH):
            _, hanging = await asyncio.wait(fetches, timeout=ABORT_SECONDS)
            for task in hanging:
                task.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    def starting(self) -> frozenset[ModelName]:
        return frozenset(
            name for name, running in self._running.items() if running.kind is EffectKind.START
        )

    def in_flight(self) -> Mapping[ModelName, InFlight]:
        return {
            name: InFlight(
                kind=running.kind,
                spec_hash=running.spec_hash,
                since=running.since,
                detail=running.fetch.detail if running.fetch else running.cause,
                gpus=running.gpus,
                gpu_share=running.gpu_share,
                nonce=running.nonce,
                pid=running.pid,
                aborting=running.aborting,
                revocable=running.recall is not None and running.recall.possible,
            )
            for name, running in self._running.items()
        }

    def progress(self, model: ModelName) -> Progress | None:
        """Of the fetch under way."""
        running = self._running.get(model)
        return running.fetch.progress if running and running.fetch else None

    @contextmanager
    def holding(self) -> Iterator[None]:
        """What is dispatched within does its first step at the end: what is to be stopped has left
        the status by then, and gets no request any more."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def take_outcomes(self) -> tuple[Outcome, ...]:
        outcomes = tuple(self._outcomes)
        self._outcomes.clear()
        return outcomes

    def dispatch(self, action: Action, prepared: Prepared | None, *, now: float) -> None:
        """Begin one action. A second effect on a model that has one is a bug of the planner."""
        if isinstance(action, AbortFetch):
            self._abort_fetch(action.model)
            return
        if isinstance(action, KeepBackend):
            self._take_back(action)
            return
        if action.model in self._running:
            raise Bug(f"cannot begin {action}: {action.model} has an effect under way")
        running, work = self._order(action, prepared)
        running.since = now
        self._running[action.model] = running
        running.task = self._tasks.create_task(
            self._guard(action.model, running, work), name=f"{running.kind}:{action.model}"
        )

    def abort_fetches(self) -> None:
        for name in tuple(self._running):
            self._abort_fetch(name)

    async def settled(self) -> None:
        """Wait until no start and no stop is under way."""
        while tasks := self._tasks_of(EffectKind.START) + self._tasks_of(EffectKind.STOP):
            await asyncio.wait(tasks)

    def _order(
        self, action: FetchFiles | StartBackend | StopBackend | StopLeftover, known: Prepared | None
    ) -> tuple[_Running, Coroutine[Any, Any, Outcome | None]]:
        timeouts = known.desired.timeouts if known else Timeouts()
        match action:
            case FetchFiles():
                model = _required(action.model, known).desired
                fetch = Fetch(model, self._cache, moved=self._wake)
                running = _Running(kind=EffectKind.FETCH, spec_hash=action.spec_hash, fetch=fetch)
                return running, self._fetch(model, fetch)
            case StartBackend():
                prepared = _required(action.model, known)
                running = _Running(
                    kind=EffectKind.START,
                    spec_hash=action.instance.spec_hash,
                    files_digest=action.instance.files_digest,
                    gpus=action.gpus,
                    gpu_share=prepared.desired.gpu_share,
                )
                return running, self._start(action, prepared)
            case StopBackend():
                view = self._view_of(action.nonce)
                ladder_begun = view is None or view.stopping
                recall = Recall() if action.revocable and not ladder_begun else None
                running = _Running(
                    kind=EffectKind.STOP,
                    spec_hash=view.instance.spec_hash if view is not None else SpecHash(""),
                    nonce=action.nonce,
                    pid=action.pid,
                    cause=action.cause,
                    recall=recall,
                )
                return running, self._stop(action, timeouts, recall)
            case StopLeftover():
                running = _Running(
                    kind=EffectKind.STOP,
                    spec_hash=SpecHash(""),
                    nonce=action.nonce,
                    pid=action.pid,
                    cause=action.reason,
                )
                return running, self._stop_leftover(action, timeouts)

    async def _guard(
        self, model: ModelName, running: _Running, work: Coroutine[Any, Any, Outcome | None]
    ) -> None:
        outcome: Outcome | None = None
        structlog.contextvars.bind_contextvars(model=model)
        try:
            await self._free.wait()
            outcome = await work
        except Exception as exc:  # noqa: BLE001  the task's boundary: a fault must not end the agent
            if not isinstance(exc, XgenError):
                _log.exception("effect failed unexpectedly", model=model, effect=running.kind.value)
            outcome = _failed(model, running, exc)
        finally:
            work.close()  # of one that was cancelled while it was held
            del self._running[model]
            if outcome is not None:
                self._outcomes.append(outcome)
            self._wake()

    async def _fetch(self, model: DesiredModel, fetch: Fetch) -> Outcome | None:
        began = self._clock()
        if not await fetch.run(self._fetch_slots):
            return None
        seconds = self._clock() - began
        return FilesFetched(
            model=model.name,
            spec_hash=model.spec_hash,
            seconds=seconds,
            size_bytes=fetch.moved_bytes,
        )

    async def _start(self, action: StartBackend, prepared: Prepared) -> Outcome | None:
        model = prepared.desired
        if prepared.files is None or prepared.choice is None:
            raise Bug(f"cannot start {model.name}: its files or its backend are not known")
        secrets = await asyncio.to_thread(secret_values, model, self._environment)
        launch = await asyncio.to_thread(
            self._engines.launch,
            model,
            prepared.files,
            prepared.choice,
            port=self._backends.free_port(),
            environment=self._environment,
            secrets=secrets,
        )
        for warning in launch.warnings:
            _log.warning("backend is started with a warning", model=model.name, warning=warning)
        await self._backends.spawn(
            model=model.name,
            spec=model.spec,
            instance=action.instance,
            gpus=action.gpus,
            launch=launch,
            first_answer_seconds=model.timeouts.first_answer,
        )
        return None

    async def _stop(
        self, action: StopBackend, timeouts: Timeouts, recall: Recall | None
    ) -> Outcome | None:
        stopper = self._stopper
        took = await stopper.stop(action.nonce, timeouts, drain=action.drain, recall=recall)
        if took is None:
            return None
        return BackendStopped(
            model=action.model,
            nonce=action.nonce,
            failure=action.failure,
            ran_seconds=action.ran_seconds,
            drain_seconds=took.drain_seconds if action.drain else None,
            stop_seconds=took.stop_seconds if action.drain else None,
        )

    async def _stop_leftover(self, action: StopLeftover, timeouts: Timeouts) -> Outcome:
        await self._stopper.stop(action.nonce, timeouts, drain=False)
        return BackendStopped(model=action.model, nonce=action.nonce)

    def _abort_fetch(self, model: ModelName) -> None:
        running = self._running.get(model)
        if running and running.fetch:
            running.fetch.give_up()

    def _take_back(self, action: KeepBackend) -> None:
        running = self._running.get(action.model)
        if running and running.recall and running.nonce == action.nonce:
            running.recall.call()

    def _tasks_of(self, kind: EffectKind) -> list[asyncio.Task[None]]:
        every = self._running.values()
        return [each.task for each in every if each.kind is kind and each.task is not None]

    def _view_of(self, nonce: Nonce) -> BackendView | None:
        return next((view for view in self._backends.live() if view.nonce == nonce), None)


def _required(model: ModelName, prepared: Prepared | None) -> Prepared:
    if prepared is None:
        raise Bug(f"cannot act on {model}: it is not desired")
    return prepared


def _failed(model: ModelName, running: _Running, error: Exception) -> EffectFailed:
    """The type of the error is the policy (errors.py); what is no error of ours is a bug."""
    shortage = is_shortage(error)
    return EffectFailed(
        model=model,
        spec_hash=running.spec_hash,
        files_digest=running.files_digest,
        during=running.kind.value,
        reason=str(error) if isinstance(error, XgenError) else f"unexpected error: {error!r}",
        permanent=isinstance(error, Rejected) and not shortage,
        shortage=shortage,
        damaged=isinstance(error, Damaged),
        own_files_in_the_way=isinstance(error, NoRoom) and model in error.enough_from,
        retry_after_seconds=error.retry_after_seconds if isinstance(error, Transient) else None,
    )
