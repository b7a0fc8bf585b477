"""The loop task: one tick observes, plans, dispatches and publishes (R1).

Everything else only calls `wake()`. Nothing but this task writes the books or the status.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import structlog
from structlog.contextvars import bind_contextvars

from reconciler.apply.backends import Backends
from reconciler.apply.effects import Effects, Prepared
from reconciler.apply.outcomes import FilesFetched
from reconciler.apply.within import within
from reconciler.errors import XgenError
from reconciler.loop.archive import Archive
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.clock import Clock
from reconciler.loop.deliberation import Deliberation
from reconciler.loop.foresight import Ground
from reconciler.loop.gpus import Gpus
from reconciler.loop.inquiries import Inquiries
from reconciler.loop.intent import Intent, Understanding
from reconciler.loop.keeping import Keeping, Specs
from reconciler.loop.launch_drifts import LaunchDrifts
from reconciler.loop.leaving import Stays, none_stays, staying
from reconciler.loop.observation import Looks, Seen
from reconciler.loop.pace import Rests, aside, give_way
from reconciler.loop.pardons import Pardons
from reconciler.loop.publisher import Publisher
from reconciler.loop.rails import Rails, runs_of
from reconciler.loop.reporter import Reporter
from reconciler.loop.reverts import note_good, want
from reconciler.loop.revisions import Revisions
from reconciler.loop.standstill import Scene, Standstill, standstill
from reconciler.loop.troubles import Troubles
from reconciler.metrics import Metrics, TickResult
from reconciler.plan.actions import Plan, Retraction
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.ending import ending
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.rails import waiting_for_window
from reconciler.status import Planned

_log = structlog.get_logger("xgen.loop")

RESYNC_SECONDS = 15.0
"""A tick happens at least this often, so that a lost wake-up costs seconds, never the truth."""
FAULT_SECONDS = 2.0
"""After a tick that our own fault ended."""


class Reconciler:
    """The loop of one agent. `wakeup` is set by whoever saw that something changed."""

    def __init__(
        self,
        *,
        intent: Intent,
        deliberation: Deliberation,
        drifts: LaunchDrifts,
        archive: Archive,
        keeping: Keeping,
        inquiries: Inquiries,
        pardons: Pardons,
        backends: Backends,
        effects: Effects,
        clock: Clock,
        publisher: Publisher,
        chronicle: Chronicle,
        troubles: Troubles,
        revisions: Revisions,
        metrics: Metrics,
        show_plan: Callable[[Planned], None],
        rails: Rails,
        wakeup: asyncio.Event,
    ) -> None:
        self._intent = intent
        self._deliberation = deliberation
        self._observer = deliberation.observer
        self._reverts = deliberation.reverts
        self._books = deliberation.books
        self._gpus = deliberation.gpus
        self._archive = archive
        self._keeping = keeping
        self._inquiries = inquiries
        self._pardons = pardons
        self._backends = backends
        self._effects = effects
        self._clock = clock
        self._publisher = publisher
        self._chronicle = chronicle
        self._troubles = troubles
        self._metrics = metrics
        self._rails = rails
        self._runs = lambda: runs_of(backends.live(), deliberation.books)
        self._wakeup = wakeup
        self._reporter = Reporter(
            deliberation=deliberation,
            launches=drifts,
            archive=archive,
            backends=backends,
            effects=effects,
            clock=clock,
            publisher=publisher,
            chronicle=chronicle,
            revisions=revisions,
            rails=rails,
            show_plan=show_plan,
        )
        self._ending = False
        self._stays: Stays = none_stays
        self._closed = False
        self._last: dict[ModelName, DesiredModel] = {}
        self._standstill: Standstill | None = None
        self._ticking = asyncio.Lock()
        self._looks: Looks = {}
        self._reads_removed: frozenset[Nonce] = frozenset()

    async def run(self) -> None:
        """Tick until `close` is called."""
        rests = Rests()
        while not self._closed:
            self._wakeup.clear()
            began = self._clock.monotonic()
            next_at = await self._guarded_tick()
            await asyncio.sleep(rests.after(self._clock.monotonic() - began))
            idle_since = self._clock.monotonic()
            pause = RESYNC_SECONDS
            if next_at is not None:
                pause = min(pause, max(0.0, next_at - self._clock.monotonic()))
            await within(pause, self._wakeup)
            rests.idle(self._clock.monotonic() - idle_since)
        await self._inquiries.close()

    def end(self, stays: Stays) -> None:
        """From the next tick on, nothing is started or stopped; what happens is still reported."""
        self._ending = True
        self._stays = stays
        self._publisher.drain()
        self._wakeup.set()

    def refuse(self) -> None:
        """After `end`: from now on new requests are not passed on to peers either."""
        self._publisher.close()

    def close(self) -> None:
        """No further tick; the one under way ends first."""
        self._closed = True
        self._wakeup.set()

    async def _guarded_tick(self) -> float | None:
        began = self._clock.monotonic()
        self._publisher.pulse.begun()
        try:
            next_at = await self.tick()
        except Exception as exc:  # noqa: BLE001  the loop's boundary: a fault must not end what serves
            _log.exception("a tick failed with an unexpected error; the next one tries again")
            self._chronicle.tick_failed(exc)
            self._publisher.fail(exc)
            self._standstill = None  # else what was said of that would stand
            self._metrics.count_tick(TickResult.FAILED, seconds=self._clock.monotonic() - began)
            self._publisher.pulse.ended(failed=True)
            return self._clock.monotonic() + FAULT_SECONDS
        self._publisher.pulse.ended(failed=False)
        return next_at

    async def ground(self) -> Ground:
        """What is known between two ticks, for who asks what would be if."""
        async with self._ticking:
            own = self._deliberation
            hints, offers = self._observer.told
            return Ground(
                deliberation=own.copy(),
                seen=replace(self._observer.see(), reads_removed=self._reads_removed),
                families=self._backends.families(),
                now=self._clock.monotonic(),
                hints=hints,
                offers=offers,
                looks=self._looks,
                pasts={name: own.books.stopwatch.past(name) for name in own.books.models()},
            )

    async def tick(self) -> float | None:
        """Observe, plan, dispatch, publish once. Returns when the next tick is due by time."""
        async with self._ticking:
            return await self._tick()

    async def _tick(self) -> float | None:
        understanding = await self._intent.refresh(self._runs)
        if await self._rails.turn(understanding, self._clock.monotonic()):
            understanding = await self._intent.refresh(self._runs)
        desired = understanding.desired
        bind_contextvars(revision=understanding.revision.applied)
        now = self._clock.monotonic()
        want(self._books, desired)
        if self._book(now) | self._pardons.grant(self._books, desired):
            self._standstill = None
        seen = await self._see()
        gpus, looks = await self._settle(desired, seen, now)
        if desired is not None and self._keeping.is_due(looks, seen, self._later()):
            looks = await self._pin(gpus, looks, seen)
        self._looks, self._reads_removed = looks, seen.reads_removed
        if self._pardons.regard(self._books, gpus):
            self._standstill = None
        memory = await self._observer.memory(looks, seen, self._gpus.figures())
        if memory is not None and memory.settles:
            self._gpus.hurry()
        scene = Scene(
            understanding=understanding,
            looks=looks,
            gpus=gpus,
            seen=seen,
            doubts=self._backends.problems,
            unkept=self._backends.custody.problems,
            over_budget=self._keeping.over_budget(),
            noticed=self._inquiries.noticed,
            memory=memory,
            epoch=self._clock.wall(0.0),
            ending=self._ending,
            maintenance=self._rails.maintenance(desired, now),
        )
        if self._standstill is not None and scene.is_as(self._standstill.scene):
            made = self._standstill.made
        else:
            made = await self._move(scene, now)
        self._rails.note_windowed(waiting_for_window(made, desired))
        self._reporter.show(made, understanding, now)
        self._count(made, understanding, now)
        times = (made.next_at, self._rails.next_at(now))
        return min((each for each in times if each is not None), default=None)

    async def _move(self, scene: Scene, now: float) -> Plan:
        """Plan, begin what is planned, and report it."""
        seen, looks, desired = scene.seen, scene.looks, scene.gpus.desired
        self._standstill = None
        if desired is not None:
            await self._remember(scene)
            await asyncio.sleep(0)  # of many models, each of these takes its time
        wanted = self._reverts.as_wanted(looks)
        self._inquiries.watch(looks, wanted, seen, self._books, desired=desired)
        reckon = partial(self._deliberation.plan, scene.gpus, looks, seen, scene.memory, now)
        there, made = await aside(reckon, len(looks))
        made = self._reverts.shown(made, now)
        if scene.ending:
            views = self._observer.see().views
            left = staying(views, self._stays)
            made = ending(made, views.keys(), left, starting=self._effects.starting())
        reverts = self._reverts
        self._troubles.tell(self._books, reverts.reversions, reverts.told(made), reverts.given)
        with self._effects.holding():
            await self._dispatch(made, looks, now)
            kept = await self._reporter.report(made, scene)
        if self._deliberation.surges.note(made.staying):
            self._wakeup.set()
        if kept:
            self._standstill = standstill(scene, there, made)
        return made

    async def _see(self) -> Seen:
        seen = self._observer.see()
        return await asyncio.to_thread(self._keeping.look, seen, self._backends.families())

    async def _settle(self, wanted: Desired | None, seen: Seen, now: float) -> tuple[Gpus, Looks]:
        settled = await self._deliberation.settle(wanted, seen, now)
        if not settled.at_rest:
            _log.error("what models get does not settle; it is taken as it stands")
        for model, reason in self._deliberation.fallbacks.take_news():
            _log.info("a model takes its fallback", model=model, reason=reason)
        self._gpus.say()
        return settled.gpus, settled.looks

    def _later(self) -> Specs:
        return self._reverts.later(self._books)

    async def _pin(self, gpus: Gpus, looks: Looks, seen: Seen) -> Looks:
        """Let what is needed stay, then look again: until now another agent might take it."""
        pinned = await asyncio.to_thread(self._keeping.pin, looks, seen, self._later())
        if pinned and self._books.hurry_fetches():
            self._standstill = None
        return await self._deliberation.look(gpus, seen)

    def _count(self, made: Plan, understanding: Understanding, began: float) -> None:
        result = TickResult.CHANGED if made.actions else TickResult.IDLE
        self._chronicle.tick_ended()
        self._metrics.count_tick(result, seconds=self._clock.monotonic() - began)
        if understanding.whole:
            self._metrics.note_success()

    def _book(self, now: float) -> bool:
        """Whether something has ended."""
        live = self._backends.live()
        self._chronicle.backends(live)
        for view in live:
            self._books.see(view)
        exits, outcomes = self._backends.take_exits(), self._effects.take_outcomes()
        for exited in exits:
            self._books.book_exit(exited)
            self._chronicle.exited(exited)
            self._publisher.drifts.exited(exited)
        for outcome in outcomes:
            self._books.book_outcome(outcome, at=now)
            self._chronicle.outcome(outcome)
            if isinstance(outcome, FilesFetched):
                self._metrics.time_fetch(outcome.seconds)
        for ended in self._backends.take_ended_unseen():
            self._chronicle.ended_unseen(ended)
            self._publisher.drifts.ended_unseen(ended)
        for rewritten in self._backends.custody.take_rewritten():
            self._troubles.record_rewritten(rewritten)
        for news in self._keeping.news():
            self._chronicle.cache_changed(news)
            self._publisher.drifts.cache_changed(news)
        return bool(exits or outcomes)

    async def _remember(self, scene: Scene) -> None:
        """Keep what was known of models that are going, and nothing of those that are gone."""
        seen, looks = scene.seen, scene.looks
        names = looks.keys() | seen.names
        self._books.keep_only(names)
        note_good(self._books, looks, seen)
        self._last = {name: model for name, model in self._last.items() if name in names}
        self._last |= {name: look.desired for name, look in looks.items()}
        forms = (looks, self._reverts.as_wanted(looks))
        await self._archive.keep(self._books, forms, scene.gpus)
        await self._gpus.keep()

    async def _dispatch(self, made: Plan, looks: Looks, now: float) -> None:
        busy = self._effects.in_flight()  # the plan has one action a model, so none changes this
        for number, action in enumerate(made.actions):
            await give_way(number)
            if self._ending:  # since this was planned
                return
            if not isinstance(action, Retraction) and action.model in busy:
                continue
            try:
                self._effects.dispatch(action, self._prepared(action.model, looks), now=now)
            except XgenError as exc:
                _log.exception("an action could not begin", model=action.model)
                self._chronicle.refused(action, exc)
            else:
                self._chronicle.begun(action)

    def _prepared(self, model: ModelName, looks: Looks) -> Prepared | None:
        """What an effect needs. A model that was removed is stopped by its own timeouts still."""
        look = looks.get(model)
        if look is not None:
            return Prepared(desired=look.desired, files=look.files, choice=look.assessment.choice)
        last = self._last.get(model)
        return Prepared(desired=last, files=None, choice=None) if last else None
