"""The loop task: one tick observes, plans, dispatches and publishes (R1).

Everything else only calls `wake()`. Nothing but this task writes the books or the status.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog
from structlog.contextvars import bind_contextvars

from reconciler.apply.backends import Backends, BackendView
from reconciler.apply.comparisons import Comparisons, Doubt
from reconciler.apply.effects import Effects, Prepared
from reconciler.apply.outcomes import FilesFetched
from reconciler.backend.engines import Assessment, Engines
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import XgenError
from reconciler.loop.books import Books
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.clock import Clock
from reconciler.loop.commands import Commands
from reconciler.loop.intent import Intent, Understanding
from reconciler.loop.publisher import Publisher
from reconciler.loop.report import ModelFacts, planned
from reconciler.metrics import Metrics, TickResult
from reconciler.plan.actions import AbortFetch, Plan
from reconciler.plan.desired import DesiredModel
from reconciler.plan.ending import ending
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import (
    EffectKind,
    FilesCached,
    FilesMissing,
    InFlight,
    Leftover,
    Observed,
    ObservedModel,
    ObservedProcess,
)
from reconciler.plan.planner import plan
from reconciler.status import Planned

_log = structlog.get_logger("xgen.loop")

RESYNC_SECONDS = 15.0
"""A tick happens at least this often, so that a lost wake-up costs seconds, never the truth."""
REST_RATIO = 5.0
"""Rest to work. What wakes the loop meanwhile is one tick: hundreds of models that retry, each at
its own moment, would else keep a core busy."""
LONGEST_REST_SECONDS = 0.25
FAULT_SECONDS = 2.0
"""After a tick that our own fault ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one desired model's files and engines say, asked once a tick."""

    desired: DesiredModel
    files: FilesCached | None
    assessment: Assessment


class Reconciler:
    """The loop of one agent. `wakeup` is set by whoever saw that something changed."""

    def __init__(
        self,
        *,
        intent: Intent,
        cache: ModelCache,
        engines: Engines,
        backends: Backends,
        effects: Effects,
        clock: Clock,
        publisher: Publisher,
        commands: Commands,
        chronicle: Chronicle,
        metrics: Metrics,
        show_plan: Callable[[Planned], None],
        max_parallel_loads: int,
        wakeup: asyncio.Event,
    ) -> None:
        self._intent = intent
        self._cache = cache
        self._engines = engines
        self._backends = backends
        self._effects = effects
        self._clock = clock
        self._publisher = publisher
        self._commands = commands
        self._chronicle = chronicle
        self._metrics = metrics
        self._show_plan = show_plan
        self._max_parallel_loads = max_parallel_loads
        self._wakeup = wakeup
        self._comparisons = Comparisons(cache, wake=wakeup.set)
        self._books = Books()
        self._ending = False
        self._closed = False
        self._last: dict[ModelName, DesiredModel] = {}

    async def run(self) -> None:
        """Tick until `close` is called."""
        while not self._closed:
            self._wakeup.clear()
            began = self._clock.monotonic()
            next_at = await self._guarded_tick()
            spent = self._clock.monotonic() - began
            await asyncio.sleep(min(spent * REST_RATIO, LONGEST_REST_SECONDS))
            pause = RESYNC_SECONDS
            if next_at is not None:
                pause = min(pause, max(0.0, next_at - self._clock.monotonic()))
            try:
                async with asyncio.timeout(pause):
                    await self._wakeup.wait()
            except TimeoutError:
                continue
        await self._comparisons.close()

    def end(self) -> None:
        """From the next tick on, nothing is started or stopped; what happens is still reported."""
        self._ending = True
        self._publisher.drain()
        self._wakeup.set()

    def close(self) -> None:
        """No further tick; the one under way ends first."""
        self._closed = True
        self._wakeup.set()

    async def _guarded_tick(self) -> float | None:
        began = self._clock.monotonic()
        try:
            return await self.tick()
        except Exception as exc:  # noqa: BLE001  the loop's boundary: a fault must not end what serves
            _log.exception("a tick failed with an unexpected error; the next one tries again")
            self._chronicle.tick_failed(exc)
            self._metrics.count_tick(TickResult.FAILED, seconds=self._clock.monotonic() - began)
            return self._clock.monotonic() + FAULT_SECONDS

    async def tick(self) -> float | None:
        """Observe, plan, dispatch, publish once. Returns when the next tick is due by time."""
        understanding = await self._intent.refresh()
        desired = understanding.desired
        bind_contextvars(revision=understanding.revision.applied)
        now = self._clock.monotonic()
        self._books.want(
            {model.name: model.spec_hash for model in desired.models} if desired else {}
        )
        self._book(now)
        self._obey()
        # What lives and what is under way is noted together with what was booked, before anything
        # is awaited: else an end could be seen whose failure is not in the books yet.
        views, in_flight = self._views(), self._effects.in_flight()
        leftovers = self._backends.leftovers()
        looks = await asyncio.to_thread(self._look, desired.models if desired else ())
        observed = self._observe(looks, views, in_flight, leftovers)
        self._comparisons.doubt(self._doubts(looks, views))
        made = plan(desired, observed, now)
        if self._ending:
            made = ending(made, self._views().keys())
        self._dispatch(made, looks, now)
        self._report(made, understanding, looks, now)
        self._count(made, understanding, now)
        return made.next_at

    def _obey(self) -> None:
        for command in self._commands.take():
            self._chronicle.asked(command)
            forgiven = self._books.forgive(command.model) if command.retry else {}
            for model, failure in forgiven.items():
                self._chronicle.forgiven(model, failure)
            if command.retry:
                self._comparisons.hurry(command.model)
            if not command.done.done():
                command.done.set_result(tuple(sorted(forgiven)))

    def _count(self, made: Plan, understanding: Understanding, began: float) -> None:
        result = TickResult.CHANGED if made.actions else TickResult.IDLE
        self._chronicle.tick_ended()
        self._metrics.count_tick(result, seconds=self._clock.monotonic() - began)
        if understanding.whole:
            self._metrics.note_success()

    def _book(self, now: float) -> None:
        live = self._backends.live()
        self._chronicle.backends(live)
        for view in live:
            self._books.see(view)
        for exited in self._backends.take_exits():
            self._books.book_exit(exited)
            self._chronicle.exited(exited)
        for outcome in self._effects.take_outcomes():
            self._books.book_outcome(outcome, at=now)
            self._chronicle.outcome(outcome)
            if isinstance(outcome, FilesFetched):
                self._metrics.count_pull(size_bytes=outcome.size_bytes, seconds=outcome.seconds)

    def _look(self, models: Iterable[DesiredModel]) -> Mapping[ModelName, _Look]:
        """Ask the cache and the engines about each model. Runs in a thread: it reads the disk."""
        looks = {}
        for model in models:
            files = self._cache.lookup(model.spec) if model.enabled else None
            assessment = self._engines.assess(model, files)
            looks[model.name] = _Look(desired=model, files=files, assessment=assessment)
        return looks

    def _doubts(
        self,
        looks: Mapping[ModelName, _Look],
        views: Mapping[ModelName, tuple[BackendView, ...]],
    ) -> Mapping[ModelName, Doubt]:
        """Files that may be bad, for all one knows: the hub may hold better ones by now."""
        proven = {
            view.instance.files_digest
            for each in views.values()
            for view in each
            if view.loaded_at is not None
        }
        return {
            name: Doubt(spec=look.desired.spec, digest=look.files.digest)
            for name, look in looks.items()
            if look.files is not None
            and look.files.digest not in proven
            and (look.assessment.bad_files or self._never_loads(look.desired, look.files))
        }

    def _never_loads(self, model: DesiredModel, files: FilesCached) -> bool:
        failed = self._books.failure(model.name)
        return (
            failed is not None
            and failed.during == "load"
            and not failed.ever_loaded
            and (failed.spec_hash, failed.files_digest) == (model.spec_hash, files.digest)
        )

    def _views(self) -> Mapping[ModelName, tuple[BackendView, ...]]:
        views: dict[ModelName, tuple[BackendView, ...]] = {}
        for view in self._backends.live():
            views[view.model] = (*views.get(view.model, ()), view)
        return views

    def _observe(
        self,
        looks: Mapping[ModelName, _Look],
        views: Mapping[ModelName, tuple[BackendView, ...]],
        in_flight: Mapping[ModelName, InFlight],
        leftovers: tuple[Leftover, ...],
    ) -> Observed:
        names = looks.keys() | views.keys() | in_flight.keys()
        self._books.keep_only(names)
        self._last = {name: model for name, model in self._last.items() if name in names}
        self._last |= {name: look.desired for name, look in looks.items()}
        return Observed(
            processes_read=True,
            models={
                name: self._observed(
                    name, looks.get(name), views.get(name, ()), in_flight.get(name)
                )
                for name in names
            },
            leftovers=leftovers,
            max_parallel_loads=self._max_parallel_loads,
        )

    def _observed(
        self,
        name: ModelName,
        look: _Look | None,
        views: tuple[BackendView, ...],
        in_flight: InFlight | None,
    ) -> ObservedModel:
        return ObservedModel(
            name=name,
            processes=tuple(
                ObservedProcess(
                    nonce=view.nonce,
                    pid=view.pid,
                    instance=view.instance,
                    started_at=view.started_at,
                    loaded_at=view.loaded_at,
                    gpus=view.gpus,
                )
                for view in views
            ),
            files=(look.files if look else None) or FilesMissing(),
            refusal=look.assessment.refusal if look else None,
            in_flight=in_flight,
            failure=self._books.failure(name),
        )

    def _dispatch(self, made: Plan, looks: Mapping[ModelName, _Look], now: float) -> None:
        busy = self._effects.in_flight()  # the plan has one action a model, so none changes this
        for action in made.actions:
            if not isinstance(action, AbortFetch) and action.model in busy:
                continue
            try:
                self._effects.dispatch(action, self._prepared(action.model, looks), now=now)
            except XgenError as exc:
                _log.exception("an action could not begin", model=action.model)
                self._chronicle.refused(action, exc)
            else:
                self._chronicle.begun(action)

    def _prepared(self, model: ModelName, looks: Mapping[ModelName, _Look]) -> Prepared | None:
        """What an effect needs. A model that was removed is stopped by its own timeouts still."""
        look = looks.get(model)
        if look is not None:
            return Prepared(desired=look.desired, files=look.files, choice=look.assessment.choice)
        last = self._last.get(model)
        return Prepared(desired=last, files=None, choice=None) if last else None

    def _report(
        self,
        made: Plan,
        understanding: Understanding,
        looks: Mapping[ModelName, _Look],
        now: float,
    ) -> None:
        views = self._views()
        in_flight = self._effects.in_flight()
        facts = {
            outlook.model: self._facts(
                outlook.model,
                looks.get(outlook.model),
                views.get(outlook.model, ()),
                in_flight.get(outlook.model),
            )
            for outlook in made.outlook
        }
        waits = made.notes
        self._publisher.report(
            made.outlook, facts, understanding, waits=waits, doubts=self._backends.problems
        )
        self._show_plan(
            planned(
                made,
                in_flight,
                revision=understanding.revision.applied,
                waits=waits,
                now=now,
                wall=self._clock.wall,
            )
        )

    def _facts(
        self,
        model: ModelName,
        look: _Look | None,
        views: tuple[BackendView, ...],
        effect: InFlight | None,
    ) -> ModelFacts:
        return ModelFacts(
            desired=look.desired if look else None,
            views=views,
            stopping=effect is not None and effect.kind is EffectKind.STOP,
            choice=look.assessment.choice if look else None,
            restarts=self._books.restarts(model),
            restart_causes=self._books.restart_causes(model),
            failure=self._books.failure(model),
            recent_failures=self._books.recent_failures(model),
            last_lines=self._books.last_lines(model),
            progress=self._effects.progress(model),
            digest=look.files.digest if look and look.files else None,
        )
