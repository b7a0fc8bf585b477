"""What a rehearsal comes to for each model: start, restart, surge, stop or nothing, and why (PURE).

An agent tells what is there now, and what it reckons with; without one, all of it is left out.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from reconciler.loop.downloads import told_once
from reconciler.loop.spec_fields import differences, of_routing, of_spec
from reconciler.plan.actions import Action, FetchFiles, Outlook, StartBackend, StopBackend
from reconciler.plan.balance import Balance
from reconciler.plan.changes import (
    STARTING,
    Change,
    FieldChange,
    NodeChanges,
    Planned,
    Verb,
)
from reconciler.plan.desired import Desired, DesiredModel, ModelSpec, Strategy
from reconciler.plan.evictions import Evictions
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import HOST, Pool
from reconciler.plan.observed import EffectKind, FilesMissing, ObservedModel
from reconciler.plan.phase import State
from reconciler.plan.rehearsal import Rehearsal
from reconciler.plan.step import TRIED

_REMOVED = "removed from the manifest, and not running"
_UNBORN = re.compile(r"\bpid -\d+")
_AT_REST = (State.LOADED, State.DISABLED, State.STOPPED)


NO_EVICTIONS = Evictions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A model as it is now. `desired`: by the manifest in force; None: that does not have it.
    `running`: the spec of its process; None: none lives, or it is not known. `drift`: of its
    engine, as a clause."""

    state: State
    reason: str
    desired: DesiredModel | None = None
    running: ModelSpec | None = None
    drift: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is reckoned for a model; None: not known. As in `Change`.

    `files`: what tells its files from others. `missing`: why they cannot be had from the hub.
    """

    download_bytes: int | None = None
    cached_bytes: int | None = None
    downtime_seconds: float | None = None
    ready_seconds: float | None = None
    engine: str | None = None
    files: Hashable = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reckoned:
    """`figures`: by model. `indexes`: of GPUs. `held`: why a rail holds a model back, as a clause.
    `notes`: what there is to say of the node beside the plan."""

    figures: Mapping[ModelName, Figures] = field(default_factory=dict)
    indexes: Mapping[Pool, int | None] = field(default_factory=dict)
    held: Mapping[ModelName, str] = field(default_factory=dict)
    evictions: Evictions = NO_EVICTIONS
    notes: tuple[str, ...] = ()


_NOT_THERE: Mapping[ModelName, Present] = MappingProxyType({})
_NOTHING = Figures()


def compared(
    wanted: Desired,
    ahead: Rehearsal,
    present: Mapping[ModelName, Present] = _NOT_THERE,
    reckoned: Reckoned = Reckoned(),
) -> NodeChanges:
    """`wanted`: as the manifest in question has it."""
    models = {model.name: model for model in wanted.models}
    not_here = {other.name: other.reason for other in wanted.elsewhere}
    names = models.keys() | ahead.first.observed.models.keys() | present.keys()
    figures = reckoned.figures
    cases = [
        _case(
            name,
            models.get(name),
            ahead,
            present.get(name),
            missing=figures.get(name, _NOTHING).missing is not None,
        )
        for name in sorted(names)
    ]
    changes = told_once(
        [_change(case, reckoned, not_here.get(case.name)) for case in cases],
        {name: each.files for name, each in figures.items()},
        ahead.actions,
    )
    there = {change.model for change in changes}
    unfit = [each.reason for each in reckoned.evictions.unfit]
    notes = [*ahead.last.plan.notes, *reckoned.notes, *unfit]
    if not ahead.at_rest:
        notes.append("this does not come to rest; what is shown is not all of it")
    return NodeChanges(
        node=wanted.node,
        changes=changes,
        elsewhere=tuple(other for other in wanted.elsewhere if other.name not in there),
        notes=tuple(map(_said, notes)),
        gpus=_gpus(ahead, changes, reckoned.indexes),
        host=_balance(HOST, ahead, changes, None),
        order=tuple(map(_planned, ahead.actions)),
        evictions=reckoned.evictions.evicted,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """`wanted`: what runs in the end, or would: the source or its fallback, with its devices.
    `begin`: as it is; `end`: how it comes out. `missing`: its files cannot be had from the hub."""

    name: ModelName
    wanted: DesiredModel | None
    actions: tuple[Action, ...]
    begin: ObservedModel
    last: ObservedModel
    end: Outlook | None
    present: Present | None
    rooms_known: bool
    missing: bool

    @property
    def blocked(self) -> str | None:
        """What speaks against what is wanted, as it is found: GPUs that are not there, say."""
        if self.end is None:
            return None
        coming = self.end.target or self.end
        waits = self.missing and coming.state is State.ERROR
        return coming.reason if waits or coming.state is State.BLOCKED else None


def _case(
    name: ModelName,
    manifest: DesiredModel | None,
    ahead: Rehearsal,
    present: Present | None,
    *,
    missing: bool,
) -> _Case:
    settled = ahead.last.desired.models if ahead.last.desired is not None else ()
    wanted = next((model for model in settled if model.name == name), None)
    if wanted is not None and wanted.instead_of is not None:  # its last good spec is nobody's wish
        wanted = manifest
    outlook = ahead.last.plan.outlook
    return _Case(
        name=name,
        wanted=wanted,
        actions=ahead.of(name),
        begin=ahead.first.observed.models.get(name) or ObservedModel(name=name),
        last=ahead.last.observed.models.get(name) or ObservedModel(name=name),
        end=next((each for each in outlook if each.model == name), None),
        present=present,
        rooms_known=bool(ahead.first.observed.rooms),
        missing=missing,
    )


def _change(case: _Case, reckoned: Reckoned, not_here: str | None) -> Change:
    verb = _verb(case)
    changed = _fields(case, whole=verb in (Verb.RESTART, Verb.SURGE))
    if verb is Verb.UNCHANGED and changed:
        verb = Verb.REROUTE
    figures = reckoned.figures.get(case.name, _NOTHING)
    wanted = case.wanted
    fallback = wanted.fallback if wanted is not None else None
    drift = case.present.drift if case.present is not None else None
    return Change(
        model=case.name,
        verb=verb,
        reason=_said(_reason(case, verb, not_here)),
        state=case.present.state if case.present is not None else None,
        fields=changed,
        fetch=_fetches(case) if verb in STARTING else None,
        source=wanted.spec.source if wanted is not None else None,
        fallback=fallback.source if fallback is not None else None,
        engine=figures.engine if verb in STARTING and figures.engine is not None else drift,
        needs=case.last.needs,
        download_bytes=figures.download_bytes,
        cached_bytes=figures.cached_bytes,
        downtime_seconds=figures.downtime_seconds,
        ready_seconds=figures.ready_seconds,
        held=reckoned.held.get(case.name),
    )


def _verb(case: _Case) -> Verb:
    kinds = _kinds(case)
    if StartBackend in kinds and StopBackend in kinds:
        verb = Verb.SURGE if kinds[0] is StartBackend else Verb.RESTART
    elif StartBackend in kinds:
        verb = Verb.START
    elif StopBackend in kinds and not case.last.processes:
        verb = Verb.STOP
    elif StopBackend in kinds:
        verb = Verb.SURGE  # the rest of one
    else:
        verb = _at_rest(case)
    serves_on = verb in (Verb.UNCHANGED, Verb.START, Verb.RESTART)
    if case.blocked is not None and serves_on and StartBackend not in kinds:
        return Verb.REFUSED
    return verb


def _kinds(case: _Case) -> list[type[Action]]:
    """Starts and stops in their order, with the one that is under way."""
    effect, kinds = case.begin.in_flight, list[type[Action]]()
    if effect is not None and effect.kind is EffectKind.START:
        kinds.append(StartBackend)
    elif effect is not None and effect.kind is EffectKind.STOP and not effect.aborting:
        kinds.append(StopBackend)
    return kinds + [
        type(each) for each in case.actions if isinstance(each, StartBackend | StopBackend)
    ]


def _at_rest(case: _Case) -> Verb:
    """Of a model of which nothing is started or stopped: it is as it should be, or waits, or what
    it has begun goes on."""
    end, loads = case.end, [each for each in case.begin.processes if each.loads]
    if end is None or (end.target is None and end.state in _AT_REST):
        if not loads:
            return Verb.UNCHANGED
        return Verb.SURGE if len(loads) < len(case.begin.processes) else Verb.START
    if end.asked_again and end.target is None:
        return Verb.UNCHANGED
    return Verb.RESTART if case.begin.processes else Verb.START


def _reason(case: _Case, verb: Verb, not_here: str | None) -> str:
    now, end = case.present, case.end
    if verb is Verb.REFUSED and case.blocked is not None:
        return case.blocked
    if verb is Verb.REROUTE:
        return "changes without a restart"
    if verb is Verb.STOP and not_here is not None:
        return not_here
    decisive = StartBackend if verb in (Verb.START, Verb.SURGE) else StopBackend
    said = next((each.reason for each in case.actions if isinstance(each, decisive)), None)
    if said is None or verb is Verb.UNCHANGED:
        if end is None:
            return not_here or _REMOVED
        return end.target.reason if end.target is not None else end.reason
    if verb in (Verb.STOP, Verb.START) and case.blocked is not None:
        said += f"; {case.blocked}"
    elif verb is Verb.START and now is not None:
        known = said.partition(TRIED)[2]
        is_told = known != "" and known in now.reason
        said += f" (now {now.state})" if is_told else f" (now {now.state}: {now.reason})"
    auto = case.wanted is not None and case.wanted.strategy is Strategy.AUTO
    if verb is Verb.SURGE and auto and not case.rooms_known:
        said += ", if there is memory for both"
    return said


def _fetches(case: _Case) -> bool:
    effect = case.begin.in_flight
    fetches = effect is not None and effect.kind is EffectKind.FETCH and not effect.aborting
    waits = case.wanted is not None and isinstance(case.last.files, FilesMissing)
    return fetches or waits or any(isinstance(each, FetchFiles) for each in case.actions)


def _fields(case: _Case, *, whole: bool) -> tuple[FieldChange, ...]:
    """The fields that are written otherwise now; those of the spec only if `whole`."""
    model, now = case.wanted, case.present
    if model is None or now is None:
        return ()
    found: list[FieldChange] = []
    if now.desired is not None:
        old, new = sorted(now.desired.aliases), sorted(model.aliases)
        found += [FieldChange(path="aliases", old=old, new=new)] if old != new else []
        found += differences(of_routing(now.desired), of_routing(model))
    if whole and now.running is not None:
        found += differences(of_spec(now.running), of_spec(model.spec))
    return tuple(sorted(found, key=lambda each: each.path))


def _planned(action: Action) -> Planned:
    gpus = action.gpus if isinstance(action, StartBackend) else ()
    kind = type(action).__name__
    return Planned(kind=kind, model=action.model, reason=_said(action.reason), gpus=gpus)


def _gpus(
    ahead: Rehearsal, changes: Sequence[Change], indexes: Mapping[Pool, int | None]
) -> tuple[Balance, ...]:
    found = [
        balance
        for pool in ahead.first.observed.rooms
        if pool != HOST
        and (balance := _balance(pool, ahead, changes, indexes.get(pool))) is not None
    ]
    return tuple(sorted(found, key=lambda each: (each.index is None, each.index or 0, each.gpu)))


def _balance(
    pool: Pool, ahead: Rehearsal, changes: Sequence[Change], index: int | None
) -> Balance | None:
    """Both as the rehearsal has it; None: the memory is not told."""
    room = ahead.first.observed.rooms.get(pool)
    if room is None:
        return None
    return Balance(
        gpu=pool,
        index=index,
        total_bytes=room.total_bytes,
        used_bytes=room.total_bytes - room.free_bytes,
        after_bytes=room.total_bytes - ahead.free_bytes.get(pool, room.free_bytes),
        complete=_is_complete(pool, changes),
    )


def _is_complete(pool: Pool, changes: Sequence[Change]) -> bool:
    """Whether all that starts tells of all that it needs; on which GPUs, is told by the need."""
    starting = [change.needs.get(pool) for change in changes if change.verb in STARTING]
    if pool != HOST:
        starting = [need for need in starting if need is not None]
    return all(need is not None and need.is_whole for need in starting)


def _said(reason: str) -> str:
    """What has no pid before it is started."""
    return _UNBORN.sub("the new process", reason)
