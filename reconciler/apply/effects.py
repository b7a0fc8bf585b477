"""Performs the plan's actions: one task an effect, at most one effect a model (R6).

Every effect ends in an outcome and a wake-up of the loop, whatever happens to it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import structlog

from reconciler.apply.backends import Backends
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched, Outcome
from reconciler.apply.secret_values import secret_values
from reconciler.backend.choice import Choice
from reconciler.backend.engines import Engines
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Bug, Rejected, Transient, XgenError
from reconciler.plan.actions import (
    AbortFetch,
    Action,
    FetchFiles,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.desired import DesiredModel, Timeouts
from reconciler.plan.ids import GpuUuid, ModelName, Nonce, SpecHash
from reconciler.plan.observed import EffectKind, FilesCached, InFlight

_log = structlog.get_logger("xgen.apply")

PARALLEL_FETCHES = 4
"""Downloads at a time; each has a thread of its own, so that they never starve other reads."""


class Traffic(Protocol):
    """How many requests a backend is answering; the proxy counts them."""

    def in_flight(self, nonce: Nonce) -> int: ...
    async def wait_idle(self, nonce: Nonce) -> None: ...


class Hurry:
    """How urgent the end is: `hurried` skips the drain, `killing` the ladder's waits (R10)."""

    def __init__(self) -> None:
        self.hurried = asyncio.Event()
        self.killing = asyncio.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What the loop knows of a model when it dispatches an action on it."""

    desired: DesiredModel
    files: FilesCached | None
    choice: Choice | None


@dataclass(slots=True)
class _Running:
    kind: EffectKind
    spec_hash: SpecHash
    since: float
    task: asyncio.Task[None]
    cancelled: threading.Event
    gpus: tuple[GpuUuid, ...] = ()
    nonce: Nonce | None = None
    progress: tuple[int, int] | None = None


class Effects:
    """The effects under way. Use as an async context manager; leaving it waits for them all."""

    def __init__(
        self,
        *,
        cache: ModelCache,
        backends: Backends,
        engines: Engines,
        traffic: Traffic,
        clock: Callable[[], float],
        wake: Callable[[], None],
        environment: Mapping[str, str],
        hurry: Hurry,
    ) -> None:
        self._hurry = hurry
        self._cache = cache
        self._backends = backends
        self._engines = engines
        self._traffic = traffic
        self._clock = clock
        self._wake = wake
        self._environment = environment
        self._running: dict[ModelName, _Running] = {}
        self._outcomes: list[Outcome] = []
        self._tasks = asyncio.TaskGroup()
        self._fetchers = ThreadPoolExecutor(PARALLEL_FETCHES, thread_name_prefix="fetch")

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self._running.values():
            running.cancelled.set()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            self._fetchers.shutdown(wait=False, cancel_futures=True)

    def in_flight(self) -> Mapping[ModelName, InFlight]:
        return {
            name: InFlight(
                kind=running.kind,
                spec_hash=running.spec_hash,
                since=running.since,
                detail=_percent(running.progress),
                gpus=running.gpus,
                nonce=running.nonce,
                aborting=running.cancelled.is_set(),
            )
            for name, running in self._running.items()
        }

    def progress(self, model: ModelName) -> tuple[int, int] | None:
        """Bytes done and total of the fetch under way."""
        running = self._running.get(model)
        return running.progress if running else None

    def take_outcomes(self) -> tuple[Outcome, ...]:
        outcomes = tuple(self._outcomes)
        self._outcomes.clear()
        return outcomes

    def dispatch(self, action: Action, prepared: Prepared | None, *, now: float) -> None:
        """Begin one action. A second effect on a model that has one is a bug of the planner."""
        if isinstance(action, AbortFetch):
            self.abort_fetch(action.model)
            return
        if action.model in self._running:
            raise Bug(f"cannot begin {action}: {action.model} has an effect under way")
        match action:
            case FetchFiles():
                model = _require(action.model, prepared).desired
                self._begin(EffectKind.FETCH, model.name, action.spec_hash, now, self._fetch(model))
            case StartBackend():
                work = self._start(action, _require(action.model, prepared))
                spec_hash = action.instance.spec_hash
                self._begin(EffectKind.START, action.model, spec_hash, now, work)
                self._running[action.model].gpus = action.gpus
            case StopBackend():
                spec_hash = self._spec_hash_of(action.nonce)
                timeouts = prepared.desired.timeouts if prepared else Timeouts()
                work = self._stop(action, spec_hash, timeouts)
                self._begin(EffectKind.STOP, action.model, spec_hash, now, work)
                self._running[action.model].nonce = action.nonce
            case StopLeftover():
                work = self._stop_leftover(action)
                self._begin(EffectKind.STOP, action.model, SpecHash(""), now, work)
                self._running[action.model].nonce = action.nonce

    def abort_fetch(self, model: ModelName) -> None:
        running = self._running.get(model)
        if running and running.kind is EffectKind.FETCH:
            running.cancelled.set()

    def abort_fetches(self) -> None:
        for name in tuple(self._running):
            self.abort_fetch(name)

    async def settled(self) -> None:
        """Wait until no effect is under way."""
        while self._running:
            await asyncio.wait([running.task for running in self._running.values()])

    def _begin(
        self,
        kind: EffectKind,
        model: ModelName,
        spec_hash: SpecHash,
        now: float,
        work: Coroutine[Any, Any, Outcome | None],
    ) -> None:
        task = self._tasks.create_task(
            self._guard(kind, model, spec_hash, work), name=f"{kind}:{model}"
        )
        self._running[model] = _Running(
            kind=kind, spec_hash=spec_hash, since=now, task=task, cancelled=threading.Event()
        )

    async def _guard(
        self,
        kind: EffectKind,
        model: ModelName,
        spec_hash: SpecHash,
        work: Coroutine[Any, Any, Outcome | None],
    ) -> None:
        def failed(reason: str, *, permanent: bool, after: float | None = None) -> EffectFailed:
            return EffectFailed(
                model=model,
                spec_hash=spec_hash,
                files_digest=None,
                during=str(kind),
                reason=reason,
                permanent=permanent,
                retry_after_seconds=after,
            )

        outcome: Outcome | None = None
        try:
            outcome = await work
        except Transient as exc:
            outcome = failed(str(exc), permanent=False, after=exc.retry_after_seconds)
        except Rejected as exc:
            outcome = failed(str(exc), permanent=True)
        except XgenError as exc:
            outcome = failed(str(exc), permanent=False)
        except Exception as exc:  # noqa: BLE001  the boundary of the task: a fault must not end the agent
            _log.exception("effect failed with an unexpected error", model=model, effect=str(kind))
            outcome = failed(f"unexpected error: {exc!r}", permanent=False)
        finally:
            del self._running[model]
            if outcome is not None:
                self._outcomes.append(outcome)
            self._wake()

    async def _fetch(self, model: DesiredModel) -> Outcome | None:
        running = self._running[model.name]
        began = self._clock()
        loop = asyncio.get_running_loop()

        def note(done: int, total: int) -> None:
            running.progress = (done, total)

        def fetch() -> None:
            self._cache.fetch(model.spec, on_progress=note, cancelled=running.cancelled.is_set)
            if self._cache.lookup(model.spec) is None:  # else it would be fetched for ever
                raise Transient(
                    f"cannot use {model.spec.source}: its files were fetched and are not found"
                )

        work = loop.run_in_executor(self._fetchers, fetch)
        limit = model.timeouts.download
        try:
            async with asyncio.timeout(limit):
                await asyncio.shield(work)
        except TimeoutError:
            running.cancelled.set()
            await asyncio.wait([work])
            raise Transient(
                f"cannot fetch {model.spec.source}: not done within {limit:.0f} s"
            ) from None
        except Transient:
            if running.cancelled.is_set():
                return None
            raise
        seconds = self._clock() - began
        return FilesFetched(model=model.name, spec_hash=model.spec_hash, seconds=seconds)

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
            instance=action.instance,
            gpus=action.gpus,
            launch=launch,
            first_answer_seconds=model.timeouts.first_answer,
        )
        return None

    async def _stop(
        self, action: StopBackend, spec_hash: SpecHash, timeouts: Timeouts
    ) -> Outcome | None:
        await self.stop(action.nonce, timeouts, drain=action.drain)
        return BackendStopped(model=action.model, nonce=action.nonce, failure=action.failure)

    async def stop(self, nonce: Nonce, timeouts: Timeouts, *, drain: bool) -> None:
        """Let the backend's requests end, then climb the ladder; both heed the hurry."""
        if drain:
            await self._drain(nonce, timeouts.drain)
        await self._backends.stop(
            nonce,
            stop_seconds=timeouts.stop,
            kill_seconds=timeouts.kill,
            hurry=self._hurry.killing,
        )

    async def _drain(self, nonce: Nonce, seconds: float) -> None:
        idle = asyncio.ensure_future(self._traffic.wait_idle(nonce))
        hurried = asyncio.ensure_future(self._hurry.hurried.wait())
        try:
            done, _ = await asyncio.wait(
                {idle, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (idle, hurried):
                task.cancel()
            await asyncio.gather(idle, hurried, return_exceptions=True)
        if idle not in done:
            left = self._traffic.in_flight(nonce)
            _log.warning("backend is stopped with requests in flight", in_flight=left)

    async def _stop_leftover(self, action: StopLeftover) -> Outcome | None:
        await self.stop(action.nonce, Timeouts(), drain=False)
        return BackendStopped(model=action.model, nonce=action.nonce)

    def _spec_hash_of(self, nonce: Nonce) -> SpecHash:
        for view in self._backends.live():
            if view.nonce == nonce:
                return view.instance.spec_hash
        return SpecHash("")


def _require(model: ModelName, prepared: Prepared | None) -> Prepared:
    if prepared is None:
        raise Bug(f"cannot act on {model}: it is not desired")
    return prepared


def _percent(progress: tuple[int, int] | None) -> str:
    if progress is None or progress[1] == 0:
        return ""
    done, total = progress
    return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB ({100 * done // total} %)"
