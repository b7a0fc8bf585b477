"""The rails of this node: what operators have ordered, which revision waits for them, the windows.

Kept by the loop alone (R1), and in the data folder; what is decided from it is in `plan.rails`.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from reconciler.apply.backends import BackendView
from reconciler.apply.rail_notes import RailFile, RailNotes
from reconciler.errors import Rejected, Transient, XgenError
from reconciler.events import EventKind, Journal
from reconciler.loop.books import Books
from reconciler.loop.clock import Clock
from reconciler.loop.orders import Confirm, Hurry, Order, Orders, Resume, Suspend
from reconciler.loop.windows import Windows
from reconciler.plan.desired import Desired, WaitingRevision
from reconciler.plan.ids import ModelName, Place
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.rails import confirmed_by_name, excess, limit_of
from reconciler.plan.stop_limit import DEFAULT_STOP_LIMIT, StopLimit
from reconciler.plan.suspension import Suspension
from reconciler.status import Revision

_log = structlog.get_logger("xgen.loop")

_REMEMBERED = 20
"""Of revisions that wait; somebody may confirm one that is not the newest any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Which models run. `proven`: those that were loaded here once and have not failed since: they
    come back after a restart of the agent or the machine, and count as running meanwhile."""

    living: frozenset[ModelName] = frozenset()
    proven: frozenset[ModelName] = frozenset()

    def of(self, before: Desired | None) -> frozenset[ModelName]:
        """Those that the manifest in force wants; None: nobody knows what it wants."""
        if before is None:
            return self.living
        wanted = {each.name for each in before.models if each.enabled}
        return (self.living | self.proven) & wanted


def runs_of(live: Iterable[BackendView], books: Books) -> Runs:
    return Runs(
        living=frozenset(view.model for view in live if not view.stopping),
        proven=frozenset(
            name for name in books.models() if books.loaded(name) and books.failure(name) is None
        ),
    )


class Understood(Protocol):
    """Of the manifest, as far as it matters here."""

    @property
    def desired(self) -> Desired | None: ...
    @property
    def revision(self) -> Revision: ...


class Rails:
    """`limit`: of this node, where the manifest writes none."""

    def __init__(
        self,
        file: RailFile,
        orders: Orders,
        *,
        clock: Clock,
        journal: Journal,
        limit: StopLimit = DEFAULT_STOP_LIMIT,
    ) -> None:
        self._file = file
        self._orders = orders
        self._clock = clock
        self._journal = journal
        self._limit = limit
        self._windows = Windows(clock)
        self._notes = RailNotes()
        self._unsaved: str | None = None
        self._seen = Revision()
        self._windowed: tuple[ModelName, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not on disk, as sentences."""
        return (self._unsaved,) if self._unsaved is not None else ()

    @property
    def suspensions(self) -> tuple[Suspension, ...]:
        """By command."""
        return self._notes.suspensions

    @property
    def confirmed(self) -> str | None:
        return self._notes.confirmed

    def open(self) -> None:
        """For a thread: it reads the disk."""
        self._notes, problem = self._file.load(now=self._now())
        if problem is not None:
            _log.error("what was suspended is not known", problem=problem)

    def judge(
        self, candidate: Desired, before: Desired | None, runs: Runs
    ) -> WaitingRevision | None:
        """Why a newer manifest waits for a confirmation; None: it is taken up. Changes nothing, and
        may be asked by a thread."""
        notes, running = self._notes, runs.of(before)
        over = excess(candidate, running, self._limit, before)
        if over is None:
            known = next(
                (each for each in notes.waiting if each.revision == candidate.revision), None
            )
            limit = limit_of(candidate, len(running), self._limit, before)
            over = known if known is not None and known.limit == limit else None
        if over is None or candidate.revision == notes.confirmed:
            return None
        return None if confirmed_by_name(candidate, over, notes.waiting) else over

    async def wait(self, waiting: WaitingRevision) -> None:
        """A newer revision was judged, and waits."""
        others = [each for each in self._notes.waiting if each.revision != waiting.revision]
        remembered = (*others, waiting)[-_REMEMBERED:]
        await self._put(replace(self._notes, waiting=remembered, confirmed=None))

    async def take_up(self) -> None:
        """A newer revision is in force; what was said of those before it is over."""
        await self._put(replace(self._notes, waiting=(), confirmed=None))

    async def turn(self, now: Understood, at: float) -> bool:
        """Take up what was ordered, and what has ended by itself. Whether something has changed
        that the manifest is to be understood by."""
        before, self._seen = self._notes, now.revision
        await self._obey(now.desired)
        await self._settle(now.desired, at)
        return (self._notes.suspensions, self._notes.confirmed) != (
            before.suspensions,
            before.confirmed,
        )

    async def _obey(self, now: Desired | None) -> None:
        """Each gets its answer, or its error."""
        for each in self._orders.take():
            try:
                said = await self._carry_out(each.order, now)
            except XgenError as exc:
                if not each.done.done():
                    each.done.set_exception(exc)
                continue
            self._journal.record(EventKind.COMMAND_RECEIVED, each.order.sentence)
            if not each.done.done():
                each.done.set_result(said)

    async def _carry_out(self, order: Order, now: Desired | None) -> str:
        match order:
            case Suspend():
                return await self._suspend(order)
            case Resume():
                return await self._resume(order, now)
            case Confirm():
                return await self._confirm(order)
            case Hurry():
                return await self._hurry(now)

    async def _suspend(self, order: Suspend) -> str:
        asked = Suspension(
            model=order.model,
            by=order.by,
            reason=order.reason,
            since=self._now(),
            until=order.until,
        )
        await self._keep(replace(self._notes, suspensions=(*self._others(order.model), asked)))
        return f"{order.model or 'the node'} is suspended {asked.said}"

    async def _resume(self, order: Resume, now: Desired | None) -> str:
        name = order.model or "the node"
        others = self._others(order.model)
        lifted = len(others) < len(self._notes.suspensions)
        known = now is None or order.model in (None, *(each.name for each in now.models))
        written = [each for each in now.suspensions if each.place] if now is not None else []
        places = [str(each.place) for each in written if each.model == order.model]
        if places and not lifted:
            raise Rejected(
                f"cannot resume {name}: the manifest suspends it ({', '.join(places)}); "
                "take that away there"
            )
        if not (lifted or places or known):
            raise Rejected(f"cannot resume {name}: no model here has this name, nor is suspended")
        if lifted:
            await self._keep(replace(self._notes, suspensions=others))
        said = f"{name} is suspended no more" if lifted else f"{name} is not suspended"
        if places:
            said = f"{name} is suspended still, by the manifest ({', '.join(places)})"
        others = (*others, *(each for each in written if each.model != order.model))
        if others and not places:
            left = ", ".join(sorted({each.model or "the node" for each in others}))
            said = f"{said}; suspended still: {left}"
        return said

    async def _confirm(self, order: Confirm) -> str:
        waiting = self._notes.waiting
        found = [each for each in waiting if each.revision.startswith(order.revision)]
        if len({each.revision for each in found}) != 1:
            names = ", ".join(each.short for each in waiting) or "none"
            raise Rejected(
                f"cannot confirm revision {order.revision}: it does not wait here; waiting: {names}"
            )
        (confirmed,) = found
        if confirmed is not waiting[-1]:
            raise Rejected(
                f"cannot confirm revision {confirmed.short}: a newer one, {waiting[-1].short}, has "
                "taken its place and waits"
            )
        await self._keep(replace(self._notes, confirmed=confirmed.revision))
        return (
            f"revision {confirmed.short} is confirmed: it stops {len(confirmed.stops)} of "
            f"{confirmed.running} running models"
        )

    async def _hurry(self, now: Desired | None) -> str:
        revision = self._newest
        windows = now.windows if now is not None else ()
        found = self._windows.look(windows, self._clock.monotonic())
        if found is None or revision is None:
            return "there is no maintenance window that anything could wait for"
        if found.is_open:
            return "a maintenance window is open; nothing waits for one"
        await self._keep(replace(self._notes, hurried=revision))
        if self._windowed:
            what = f"does now what waited for the maintenance window: {', '.join(self._windowed)}"
        else:
            what = "nothing waits for the maintenance window now, nor will what else comes of it"
        return f"revision {revision[:12]}: {what}"

    def note_windowed(self, models: tuple[ModelName, ...]) -> None:
        """Which models wait for a maintenance window, by the newest plan."""
        self._windowed = models

    def maintenance(self, now: Desired | None, at: float) -> Maintenance | None:
        """Of this moment; None: what serves may be stopped at any time, or somebody does not want
        to wait."""
        if now is None:
            return None
        found = self._windows.look(now.windows, at)
        waits = found is not None and not found.is_open
        hurried = self._notes.hurried is not None and self._notes.hurried == self._newest
        return None if waits and hurried else found

    async def _settle(self, now: Desired | None, at: float) -> None:
        """What ends by itself: a suspension by its time, a hurry by another revision or by a
        window. What is not on disk yet is written again."""
        moment, before = datetime.fromisoformat(self._clock.wall(at)), self._notes
        over = [each for each in before.suspensions if _is_over(each, moment)]
        notes = replace(
            before, suspensions=tuple(each for each in before.suspensions if each not in over)
        )
        if before.hurried is not None and self._hurry_is_over(now, at):
            notes = replace(notes, hurried=None)
        for each in over:
            self._journal.record(
                EventKind.SUSPENSION_ENDED,
                f"{each.model or 'the node'} is suspended no more: it was until {each.until}",
                model=each.model,
            )
        if notes != before or self._unsaved is not None:
            await self._put(notes)

    def next_at(self, at: float) -> float | None:
        """When the next suspension ends by its time, on the clock of `at`."""
        moment = datetime.fromisoformat(self._clock.wall(at))
        ends = [datetime.fromisoformat(each.until) for each in self.suspensions if each.until]
        return min((at + (end - moment).total_seconds() for end in ends), default=None)

    @property
    def _newest(self) -> str | None:
        return self._seen.attempted or self._seen.applied

    def _hurry_is_over(self, now: Desired | None, at: float) -> bool:
        if now is None:
            return False
        found = self._windows.look(now.windows, at)
        if found is None or found.is_open:
            return True
        return self._notes.hurried != self._newest

    def _others(self, model: ModelName | None) -> tuple[Suspension, ...]:
        return tuple(each for each in self._notes.suspensions if each.model != model)

    def _now(self) -> str:
        return self._clock.wall(self._clock.monotonic())

    async def _keep(self, notes: RailNotes) -> None:
        """On disk, or not at all: who ordered it is told so."""
        if notes != self._notes:
            await asyncio.to_thread(self._file.save, notes)
            self._notes, self._unsaved = notes, None

    async def _put(self, notes: RailNotes) -> None:
        """It is so, whatever the disk says; that is tried until it is there."""
        if notes == self._notes and self._unsaved is None:
            return
        self._notes = notes
        try:
            await asyncio.to_thread(self._file.save, notes)
        except Transient as exc:
            if self._unsaved is None:
                _log.error("what is suspended and confirmed is not on disk", error=str(exc))
            self._unsaved = f"{exc}; a restart would know an older state of it"
        else:
            self._unsaved = None


def overlaid(desired: Desired, suspensions: tuple[Suspension, ...]) -> Desired:
    """With what commands suspend."""
    every = (*desired.suspensions, *suspensions)
    return replace(
        desired,
        suspend=desired.suspend or any(each.model is None for each in suspensions),
        suspensions=every,
    )


def waiting_for(before: Desired | None, candidate: Desired, waiting: WaitingRevision) -> Desired:
    """What is in force while the candidate waits: the one before; where none is known, the
    candidate without its stops. What it suspends is suspended at once."""
    if before is None:
        return replace(candidate, waiting=waiting)
    more = tuple(each for each in candidate.suspensions if each not in before.suspensions)
    told = replace(waiting, changes=_changed(before, candidate))
    return replace(overlaid(before, more), waiting=told)


def _changed(before: Desired, candidate: Desired) -> tuple[ModelName, ...]:
    """Of the models that are in both, sorted; where they stand does not matter."""
    nowhere = Place(file="", line=0, column=0)
    now, then = (
        {each.name: replace(each, place=nowhere, flag_places={}) for each in desired.models}
        for desired in (before, candidate)
    )
    return tuple(sorted(name for name in now if name in then and now[name] != then[name]))


def _is_over(suspension: Suspension, moment: datetime) -> bool:
    return suspension.until is not None and datetime.fromisoformat(suspension.until) <= moment
