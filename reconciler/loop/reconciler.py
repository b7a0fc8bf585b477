"""The loop task: one tick observes, plans, dispatches and publishes (R1).

Everything else only calls `wake()`. Nothing but this task writes the books or the status.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from reconciler.apply.backends import Backends, BackendView
from reconciler.apply.effects import Effects, Prepared
from reconciler.backend.engines import Assessment, Engines
from reconciler.cache.store import ModelCache
from reconciler.errors import Bug, XgenError
from reconciler.loop.books import Books
from reconciler.loop.conditions import Fact, source_facts, stamped
from reconciler.loop.intent import Intent, Understanding
from reconciler.loop.report import ModelFacts, model_status, settled
from reconciler.plan.actions import AbortFetch, Action, Outlook, Plan
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import (
    EffectKind,
    FilesCached,
    FilesMissing,
    InFlight,
    Observed,
    ObservedModel,
    ObservedProcess,
)
from reconciler.plan.phase import State, advance
from reconciler.plan.planner import plan
from reconciler.status import Condition, Status

_log = structlog.get_logger("xgen.loop")

RESYNC_SECONDS = 15.0
"""A tick happens at least this often, so that a lost wake-up costs seconds, never the truth."""


class Clock(Protocol):
    """`monotonic` is the plan's clock; `wall` turns one of its moments into RFC 3339, UTC."""

    def monotonic(self) -> float: ...
    def wall(self, moment: float) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one desired model's files and engines say, asked once a tick."""

    desired: DesiredModel
    files: FilesCached | None
    assessment: Assessment


class Reconciler:
    """The loop of one agent. `publish` is called with each changed status."""

    def __init__(
        self,
        *,
        intent: Intent,
        cache: ModelCache,
        engines: Engines,
        backends: Backends,
        effects: Effects,
        clock: Clock,
        publish: Callable[[Status], None],
        status: Status,
        max_parallel_loads: int,
        wakeup: asyncio.Event,
    ) -> None:
        self._intent = intent
        self._cache = cache
        self._engines = engines
        self._backends = backends
        self._effects = effects
        self._clock = clock
        self._publish = publish
        self._status = status
        self._max_parallel_loads = max_parallel_loads
        self._wakeup = wakeup
        self._books = Books()
        self._states: dict[ModelName, State] = {}
        self._closing = False
        self._said: dict[ModelName, tuple[State, str]] = {}

    async def run(self) -> None:
        """Tick until `close` is called."""
        while not self._closing:
            self._wakeup.clear()
            next_at = await self.tick()
            pause = RESYNC_SECONDS
            if next_at is not None:
                pause = min(pause, max(0.0, next_at - self._clock.monotonic()))
            try:
                async with asyncio.timeout(pause):
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    def close(self) -> None:
        """No further tick; the one under way ends first."""
        self._closing = True
        self._wakeup.set()

    def drain(self) -> None:
        """Publish that new work is refused from now on."""
        fact = Fact(type="Draining", status=True, reason="Stopping", message="the agent is ending")
        since = self._clock.wall(self._clock.monotonic())
        self._put(
            replace(
                self._status,
                draining=True,
                conditions=(*self._status.conditions, *stamped([fact], {}, now=since)),
            )
        )

    async def tick(self) -> float | None:
        """Observe, plan, dispatch, publish once. Returns when the next tick is due by time."""
        understanding = await self._intent.refresh()
        desired = understanding.desired
        now = self._clock.monotonic()
        self._books.want(
            {model.name: model.spec_hash for model in desired.models} if desired else {}
        )
        self._book(now)
        looks = await asyncio.to_thread(self._look, desired.models if desired else ())
        views = self._views()
        observed = self._observe(looks, views)
        made = plan(desired, observed, now)
        self._dispatch(made, looks, now)
        self._report(made, understanding, looks)
        return made.next_at

    def _book(self, now: float) -> None:
        for view in self._backends.live():
            self._books.see(view)
        for exited in self._backends.take_exits():
            self._books.book_exit(exited)
            level = _log.info if exited.during == "stop" else _log.warning
            level("backend exited", model=exited.model, pid=exited.pid, reason=exited.reason)
        for outcome in self._effects.take_outcomes():
            self._books.book_outcome(outcome, at=now)

    def _look(self, models: Iterable[DesiredModel]) -> Mapping[ModelName, _Look]:
        """Ask the cache and the engines about each model. Runs in a thread: it reads the disk."""
        looks = {}
        for model in models:
            files = self._cache.lookup(model.spec) if model.enabled else None
            assessment = self._engines.assess(model, files)
            looks[model.name] = _Look(desired=model, files=files, assessment=assessment)
        return looks

    def _views(self) -> Mapping[ModelName, tuple[BackendView, ...]]:
        views: dict[ModelName, tuple[BackendView, ...]] = {}
        for view in self._backends.live():
            views[view.model] = (*views.get(view.model, ()), view)
        return views

    def _observe(
        self,
        looks: Mapping[ModelName, _Look],
        views: Mapping[ModelName, tuple[BackendView, ...]],
    ) -> Observed:
        in_flight = self._effects.in_flight()
        names = looks.keys() | views.keys() | in_flight.keys()
        self._books.keep_only(names)
        return Observed(
            processes_read=True,
            models={
                name: self._observed(
                    name, looks.get(name), views.get(name, ()), in_flight.get(name)
                )
                for name in names
            },
            leftovers=self._backends.leftovers(),
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
        for action in made.actions:
            if not isinstance(action, AbortFetch) and action.model in self._effects.in_flight():
                continue
            _log.info(_order(action), model=action.model, reason=action.reason)
            look = looks.get(action.model)
            prepared = None
            if look is not None:
                prepared = Prepared(
                    desired=look.desired, files=look.files, choice=look.assessment.choice
                )
            try:
                self._effects.dispatch(action, prepared, now=now)
            except XgenError:
                _log.exception("an action could not begin", model=action.model)

    def _report(
        self, made: Plan, understanding: Understanding, looks: Mapping[ModelName, _Look]
    ) -> None:
        now = self._clock.wall(self._clock.monotonic())
        desired = understanding.desired
        views = self._views()
        in_flight = self._effects.in_flight()
        models = []
        for outlook in made.outlook:
            self._advance(outlook)
            look = looks.get(outlook.model)
            effect = in_flight.get(outlook.model)
            facts = ModelFacts(
                desired=look.desired if look else None,
                views=views.get(outlook.model, ()),
                stopping=effect is not None and effect.kind is EffectKind.STOP,
                choice=look.assessment.choice if look else None,
                restarts=self._books.restarts(outlook.model),
                last_lines=self._books.last_lines(outlook.model),
                progress=self._effects.progress(outlook.model),
                digest=look.files.digest if look and look.files else None,
            )
            if facts.desired is not None or facts.views:
                models.append(model_status(outlook, facts, wall=self._clock.wall))
        suspended = desired is not None and desired.suspend
        ready = self._status.ready or (
            desired is not None
            and all(
                settled(model, self._books.failures_in_a_row(model.name), suspended=suspended)
                for model in models
            )
        )
        before = {condition.type: condition for condition in self._status.conditions}
        self._put(
            replace(
                self._status,
                revision=understanding.revision,
                models=tuple(sorted(models, key=lambda model: model.name)),
                elsewhere=desired.elsewhere if desired else (),
                conditions=self._conditions(made, understanding, suspended, before, now),
                ready=ready,
            )
        )

    def _conditions(
        self,
        made: Plan,
        understanding: Understanding,
        suspended: bool,
        before: Mapping[str, Condition],
        now: str,
    ) -> tuple[Condition, ...]:
        facts = [*source_facts(understanding)]
        if suspended:
            facts.append(
                Fact(
                    type="Suspended",
                    status=True,
                    reason="Manifest",
                    message="suspend: true; nothing is started or stopped",
                )
            )
        problems = (*made.notes, *self._backends.problems)
        if problems:
            facts.append(
                Fact(
                    type="Reconciling", status=False, reason="Waiting", message="; ".join(problems)
                )
            )
        return stamped(facts, before, now=now)

    def _advance(self, outlook: Outlook) -> None:
        """Check the step against the table of states; a wrong one is our bug, said and survived."""
        old = self._states.get(outlook.model)
        try:
            self._states[outlook.model] = advance(old, outlook.state)
        except Bug:
            _log.exception("illegal state", model=outlook.model)
            self._states[outlook.model] = outlook.state
        said = (outlook.state, outlook.reason)
        if old is not outlook.state:
            _log.info("model is " + outlook.state, model=outlook.model, reason=outlook.reason)
        self._said[outlook.model] = said

    def _put(self, status: Status) -> None:
        """Publish, if anything changed but the version."""
        if replace(status, version=self._status.version) == self._status:
            return
        self._status = replace(status, version=self._status.version + 1)
        self._publish(self._status)


def _order(action: Action) -> str:
    return {
        "FetchFiles": "fetching files",
        "StartBackend": "starting backend",
        "StopBackend": "stopping backend",
        "StopLeftover": "stopping what an earlier agent left",
        "AbortFetch": "giving up a download",
    }[type(action).__name__]


__all__ = ["Clock", "Desired", "Reconciler"]
