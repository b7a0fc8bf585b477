"""Answers what a manifest would change on this node. A question, not a change: nothing is begun,
kept or told, but for the answer."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.backend.inventory import called
from reconciler.backend.offer import Offer
from reconciler.errors import Transient
from reconciler.loop.clock import Clock
from reconciler.loop.comparison import NO_EVICTIONS, Figures, Present, Reckoned, compared
from reconciler.loop.downloads import files_key
from reconciler.loop.foresight import Foresight, Ground, Hub
from reconciler.loop.intent import Understanding
from reconciler.loop.keeping import Keeping
from reconciler.loop.observation import Look
from reconciler.loop.pardons import Pardons
from reconciler.loop.rails import Rails, overlaid, runs_of
from reconciler.loop.unheld import awaited, awaiting, begun_told, held_reasons, unheld
from reconciler.loop.windows import Windows
from reconciler.manifest.problem import Problem
from reconciler.manifest.resolve import FileInput, resolve
from reconciler.manifest.union import Manifest
from reconciler.plan.actions import Plan
from reconciler.plan.changes import NodeChanges
from reconciler.plan.desired import Desired, ModelSpec
from reconciler.plan.downtime import downtime
from reconciler.plan.durations import (
    UNTIMED,
    expected_fetch,
    expected_load,
    expected_stop,
    expected_wait,
)
from reconciler.plan.evictions import Evictions
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.memory import pool_of
from reconciler.plan.rehearsal import Rehearsal
from reconciler.status import Status

WAIT_SECONDS = 30.0
"""For the rehearsal before this one to end."""
CANDIDATE = "candidate"
"""As its revision is called."""
_SHOWN = 12


class Grounds(Protocol):
    """The loop."""

    async def ground(self) -> Ground: ...


class Manifests(Protocol):
    """The loop's intent."""

    @property
    def understanding(self) -> Understanding: ...
    @property
    def in_force(self) -> Mapping[str, bytes]: ...
    @property
    def awaited(self) -> Mapping[str, bytes] | None: ...
    def select(self, manifest: Manifest, *, revision: str) -> Desired: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """`changes` None: the manifest cannot be taken whole, for these problems."""

    changes: NodeChanges | None
    problems: tuple[Problem, ...] = ()


class Rehearsals:
    """One at a time. `status`: the newest."""

    def __init__(
        self,
        *,
        loop: Grounds,
        intent: Manifests,
        hub: Hub,
        keeping: Keeping,
        pardons: Pardons,
        rails: Rails,
        clock: Clock,
        status: Callable[[], Status],
    ) -> None:
        self._loop = loop
        self._intent = intent
        self._hub = hub
        self._keeping = keeping
        self._pardons = pardons
        self._rails = rails
        self._clock = clock
        self._status = status
        self._turn = asyncio.Lock()

    async def rehearse(self, files: Mapping[str, bytes] | None) -> Foretold:
        """What this manifest would change; None: the newest one, also where it is not in force.
        Raises Transient."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._turn.acquire()
        except TimeoutError as exc:
            raise Transient(
                "cannot tell what would be done: others have asked, and are not answered yet"
            ) from exc
        try:
            return await (self._own() if files is None else self._candidate(files))
        finally:
            self._turn.release()

    async def _own(self) -> Foretold:
        understanding, awaited_files = self._intent.understanding, self._intent.awaited
        desired, waiting = understanding.desired, understanding.waiting
        if desired is None:
            raise Transient("cannot tell what would be done: no valid manifest was read yet")
        ground = await self._loop.ground()
        changes = await self._ask(ground, desired, desired)
        if waiting is not None and awaited_files is not None:
            wanted = (await self._read(awaited_files, waiting.revision))[0]
            if wanted is not None:
                ground = _unhurried(ground, Windows(self._clock))
                changes = awaiting(changes, await self._ask(ground, wanted, desired), waiting)
        return Foretold(
            changes=_with_errors(changes, understanding), problems=understanding.problems
        )

    async def _candidate(self, files: Mapping[str, bytes]) -> Foretold:
        before = self._intent.understanding.desired
        wanted, problems = await self._read(files, CANDIDATE)
        if wanted is None:
            return Foretold(changes=None, problems=problems)
        ground = await self._loop.ground()
        views = (each for views in ground.seen.views.values() for each in views)
        runs = runs_of(views, ground.deliberation.books)
        waiting = self._rails.judge(wanted, before, runs)
        ground = _unhurried(ground, Windows(self._clock))
        changes = await self._ask(ground, wanted, before)
        if waiting is not None:  # before somebody confirms it, nothing of it is done
            changes = replace(awaited(changes, waiting), order=())
        return Foretold(changes=changes, problems=problems)

    async def _read(
        self, files: Mapping[str, bytes], revision: str
    ) -> tuple[Desired | None, tuple[Problem, ...]]:
        """None: it cannot be taken whole, for these problems."""
        in_force = self._intent.in_force
        listed = [FileInput(name=name, content=each) for name, each in files.items()]
        found = await asyncio.to_thread(resolve, listed, in_force)
        if not found.whole or found.manifest is None:
            return None, found.problems
        wanted = self._intent.select(found.manifest, revision=revision)
        return overlaid(wanted, self._rails.suspensions), found.problems

    async def _ask(self, ground: Ground, wanted: Desired, before: Desired | None) -> NodeChanges:
        question = _Question(
            ground=ground,
            wanted=wanted,
            before=before,
            status=self._status(),
            hub=self._hub,
            keeping=self._keeping,
            pardons=self._pardons,
        )
        found: list[NodeChanges] = []
        await in_daemon_thread(lambda: found.append(question.answer()), name="rehearsal")
        return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """`before`: the manifest in force. All of it happens in a thread."""

    ground: Ground
    wanted: Desired
    before: Desired | None
    status: Status
    hub: Hub
    keeping: Keeping
    pardons: Pardons

    def answer(self) -> NodeChanges:
        """What is told of the models is what comes once no rail holds it back any more."""
        ahead, foresight = self._run(self.wanted)
        made = ahead.last.plan
        if not made.held:
            return self._told(ahead, foresight, made)
        whole = self._told(*self._run(unheld(self.wanted)), made)
        whole = begun_told(whole, made, self.wanted.waiting)
        as_held = compared(self.wanted, ahead)
        return replace(whole, order=as_held.order, notes=as_held.notes)

    def _run(self, wanted: Desired) -> tuple[Rehearsal, Foresight]:
        with Foresight(
            self.ground, wanted, hub=self.hub, keeping=self.keeping, pardons=self.pardons
        ) as foresight:
            return foresight.run(), foresight

    def _told(self, ahead: Rehearsal, foresight: Foresight, held: Plan) -> NodeChanges:
        reckoned = self._reckoned(ahead, foresight, held)
        return compared(self.wanted, ahead, self._present(), reckoned)

    def _present(self) -> Mapping[ModelName, Present]:
        desired = {model.name: model for model in self.before.models} if self.before else {}
        return {
            each.name: Present(
                state=each.state,
                reason=each.reason,
                desired=desired.get(each.name),
                running=self._running(each.name),
                drift=each.engine.drift if each.engine is not None else None,
            )
            for each in self.status.models
        }

    def _running(self, name: ModelName) -> ModelSpec | None:
        """The spec of what serves, else of what lives."""
        views = sorted(self.ground.seen.views.get(name, ()), key=lambda view: not view.was_loaded)
        if not views:
            return None
        spec_hash, look = views[0].instance.spec_hash, self.ground.looks.get(name)
        if look is not None and look.desired.spec_hash == spec_hash:
            return look.desired.spec
        good = self.ground.deliberation.books.last_good(name)
        if good is None or good.spec_hash != spec_hash:
            return None
        wanted = next((model.spec for model in self.wanted.models if model.name == name), None)
        return _as_written(good.spec, wanted)

    def _reckoned(self, ahead: Rehearsal, foresight: Foresight, held: Plan) -> Reckoned:
        settled = foresight.learned.settled
        looks = settled.looks if settled is not None else {}
        roll = settled.gpus.roll if settled is not None else None
        evictions, notes = self._evictions(foresight)
        return Reckoned(
            figures={name: self._figures(look, ahead, foresight) for name, look in looks.items()},
            indexes={pool_of(each): each.index for each in (roll.devices if roll else ())},
            held=held_reasons(held, self.wanted),
            evictions=evictions,
            notes=notes,
        )

    def _figures(self, look: Look, ahead: Rehearsal, foresight: Foresight) -> Figures:
        model, past = look.desired, self.ground.pasts.get(look.desired.name, UNTIMED)
        fetched = foresight.learned.fetched.get(model.name)
        if fetched is None and look.files is None and model.enabled:
            fetched = look  # it waits for another try
        says = foresight.learned.of(fetched.desired) if fetched is not None else None
        offer = says.offer if says is not None else None
        choice = look.assessment.choice
        gap = downtime(
            ahead.of(model.name),
            serving=self._serving(model.name),
            load=expected_load(
                past,
                backend=choice.build.id if choice is not None else None,
                spec=model.spec,
                spec_hash=model.spec_hash,
                after_fetch=fetched is not None,
                others=self.ground.pasts.values(),
            ),
            stop=expected_stop(past),
            wait_seconds=expected_wait(past),
            download_seconds=self._download_seconds(fetched, offer),
        )
        named = model.spec.engine is not None and choice is not None
        return Figures(
            cached_bytes=self.keeping.cached_bytes(fetched.desired if fetched else model),
            downtime_seconds=gap.seconds,
            ready_seconds=gap.ready_seconds,
            engine=f"{called(choice.build)} is {choice.build.detail}"
            if named and choice is not None
            else None,
            download_bytes=offer.size_bytes if offer is not None else None,
            files=files_key(fetched.desired.spec, offer) if fetched is not None else None,
            missing=foresight.learned.missing.get(model.name),
        )

    def _download_seconds(self, fetched: Look | None, offer: Offer | None) -> float | None:
        """By what the hub offers, of which some may be here; None: not known."""
        if fetched is None:
            return 0.0
        if offer is None:
            return None
        return expected_fetch(self.ground.pasts.values(), offer.size_bytes).seconds

    def _serving(self, name: ModelName) -> Nonce | None:
        views = self.ground.seen.views.get(name, ())
        serving = [view for view in views if view.was_loaded and not view.stopping]
        return serving[0].nonce if serving else None

    def _evictions(self, foresight: Foresight) -> tuple[Evictions, tuple[str, ...]]:
        """What the downloads would evict, in their order; or why nobody can say."""
        learned, own = foresight.learned, foresight.deliberation
        if learned.settled is None or not learned.fetched:
            return NO_EVICTIONS, ()
        looks = {**learned.fetched, **learned.settled.looks, **learned.fetched}
        try:
            later = own.reverts.later(own.books)
            return self.keeping.foresee(looks, self.ground.seen, later), ()
        except Transient as exc:
            return NO_EVICTIONS, (str(exc),)


def _as_written(good: ModelSpec, wanted: ModelSpec | None) -> ModelSpec:
    """What was last good is kept with the digest of its files, which nobody need have written."""
    digest = wanted.digest if wanted is not None else None
    if digest is None or digest.removeprefix("sha256:") == good.digest:
        return replace(good, digest=digest)
    return good


def _with_errors(made: NodeChanges, now: Understanding) -> NodeChanges:
    """With why the newest revision is not in force."""
    errors = [str(each) for each in now.problems if each.is_error]
    if now.source_error is not None:
        note = "the manifest cannot be read; what is in force stays"
        return replace(made, errors=(now.source_error,), notes=(note, *made.notes))
    if not errors:
        return made
    revision = (now.revision.attempted or "")[:_SHOWN]
    note = f"revision {revision} is refused for its errors; what is in force stays"
    return replace(made, errors=tuple(errors), notes=(note, *made.notes))


def _unhurried(ground: Ground, windows: Windows) -> Ground:
    """Another revision than the one that somebody may have let through its window."""

    def maintenance(desired: Desired | None, now: float) -> Maintenance | None:
        return windows.look(desired.windows, now) if desired is not None else None

    return replace(ground, deliberation=replace(ground.deliberation, maintenance=maintenance))
