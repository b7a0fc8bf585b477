"""What a manifest would change on a node, against what runs there (PURE)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.cli.forecast import Forecast, files_of, forecast
from reconciler.plan.actions import Action, FetchFiles, StartBackend, StopBackend
from reconciler.plan.desired import Desired, DesiredModel, Elsewhere
from reconciler.plan.ids import FilesDigest, Instance, ModelName, NodeName, Nonce, SpecHash
from reconciler.plan.observed import FilesMissing, Observed, ObservedModel, ObservedProcess
from reconciler.plan.phase import State

Fields = Mapping[str, object]
"""By dotted path: `extra_args.ctx_size`."""


class Verb(StrEnum):
    START = "start"
    RESTART = "restart"
    ROUTE = "route"
    STOP = "stop"
    REFUSED = "refused"
    NONE = "none"


CHANGING = frozenset({Verb.START, Verb.RESTART, Verb.ROUTE, Verb.STOP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One model as an agent tells of it.

    `pid` None: no process. `target_hash`: of the instance that is coming. `spec` and `routing` by
    field; None: the agent does not tell them.
    """

    name: ModelName
    state: State
    reason: str
    aliases: tuple[str, ...] = ()
    pid: int | None = None
    spec_hash: SpecHash | None = None
    digest: FilesDigest | None = None
    target_hash: SpecHash | None = None
    target_state: State | None = None
    target_reason: str = ""
    spec: Fields | None = None
    routing: Fields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """`old` or `new` None: not written."""

    path: str
    old: object
    new: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happens to one model. `state`: as it is now; None: it is not there.

    `fetch`: the files come from the hub first; None: nothing is said of them.
    """

    model: ModelName
    verb: Verb
    reason: str
    state: State | None = None
    fields: tuple[FieldChange, ...] = ()
    fetch: bool | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanges:
    """All models of one node, sorted by name. `notes`: what holds up the node as a whole."""

    node: NodeName
    changes: tuple[Change, ...]
    elsewhere: tuple[Elsewhere, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def count(self, verb: Verb) -> int:
        return sum(change.verb is verb for change in self.changes)


def changes(
    desired: Desired, running: Sequence[Running], fields: Mapping[ModelName, tuple[Fields, Fields]]
) -> NodeChanges:
    """Compare. `fields`: of each desired model, the fields of its spec and those of its routing."""
    there = {each.name: each for each in running}
    wanted = {model.name: model for model in desired.models}
    observed = Observed(
        processes_read=True,
        models={each.name: _observed(each, wanted, fields) for each in running},
        max_parallel_loads=len(wanted) + 1,
    )
    ahead = forecast(desired, observed)
    not_here = {other.name: other.reason for other in desired.elsewhere}
    return NodeChanges(
        node=desired.node,
        changes=tuple(
            _change(name, wanted.get(name), there.get(name), ahead, fields, not_here)
            for name in sorted(wanted.keys() | there.keys())
        ),
        elsewhere=tuple(other for other in desired.elsewhere if other.name not in there),
        notes=ahead.notes,
    )


def _observed(
    now: Running,
    wanted: Mapping[ModelName, DesiredModel],
    fields: Mapping[ModelName, tuple[Fields, Fields]],
) -> ObservedModel:
    model = wanted.get(now.name)
    processes: tuple[ObservedProcess, ...] = ()
    digest = now.digest or FilesDigest("")
    if now.pid is not None and now.spec_hash is not None:
        loaded_at = 0.0 if now.state is State.LOADED else None
        processes = (
            ObservedProcess(
                nonce=Nonce(str(now.pid)),
                pid=now.pid,
                instance=Instance(spec_hash=now.spec_hash, files_digest=digest),
                started_at=0.0,
                loaded_at=loaded_at,
            ),
        )
    known = model is not None and now.digest is not None and _same_files(now, model, fields)
    return ObservedModel(
        name=now.name,
        processes=processes,
        files=files_of(digest) if known else FilesMissing(),
        refusal=_refusal(now, model),
    )


_REMOVED = "removed from the manifest, and not running"
_OF_FILES = ("source", "file", "digest", "format")


def _same_files(
    now: Running, model: DesiredModel, fields: Mapping[ModelName, tuple[Fields, Fields]]
) -> bool:
    if now.spec_hash == model.spec_hash:
        return True
    if now.spec is None or model.name not in fields:
        return False
    written = fields[model.name][0]
    return all(now.spec.get(path) == written.get(path) for path in _OF_FILES)


def _refusal(now: Running, model: DesiredModel | None) -> str | None:
    """The agent's own verdict, where it was about this very spec."""
    if model is None:
        return None
    if now.target_hash == model.spec_hash and now.target_state is State.BLOCKED:
        return now.target_reason
    if now.spec_hash == model.spec_hash and now.state is State.BLOCKED:
        return now.reason
    return None


def _change(
    name: ModelName,
    model: DesiredModel | None,
    now: Running | None,
    ahead: Forecast,
    fields: Mapping[ModelName, tuple[Fields, Fields]],
    not_here: Mapping[ModelName, str],
) -> Change:
    actions = ahead.actions.get(name, ())
    outlook = ahead.outlook.get(name)
    verb = _verb(actions)
    differing = _differing(model, now, fields, whole=verb is Verb.RESTART)
    refusal = _refusal(now, model) if now is not None else None
    reason = outlook.reason if outlook is not None else not_here.get(name, _REMOVED)
    if refusal is not None and verb is Verb.NONE:
        verb, reason = Verb.REFUSED, refusal
    elif verb is Verb.NONE and differing:
        verb = Verb.ROUTE
        reason = "changes without a restart"
    elif verb is not Verb.NONE:
        reason = _reason(name, verb, actions, now, not_here)
    return Change(
        model=name,
        verb=verb,
        reason=reason,
        state=now.state if now is not None else None,
        fields=differing,
        fetch=_fetch(actions, verb),
        source=model.spec.source if model is not None else None,
    )


def _verb(actions: Sequence[Action]) -> Verb:
    starts = any(isinstance(action, StartBackend) for action in actions)
    stops = any(isinstance(action, StopBackend) for action in actions)
    if starts:
        return Verb.RESTART if stops else Verb.START
    return Verb.STOP if stops else Verb.NONE


def _reason(
    name: ModelName,
    verb: Verb,
    actions: Sequence[Action],
    now: Running | None,
    not_here: Mapping[ModelName, str],
) -> str:
    if verb is Verb.STOP and name in not_here:
        return not_here[name]
    decisive = StartBackend if verb is Verb.START else StopBackend
    said = next(action.reason for action in actions if isinstance(action, decisive))
    if verb is Verb.START and now is not None:
        said += f" (now {now.state}: {now.reason})"
    return said


def _fetch(actions: Sequence[Action], verb: Verb) -> bool | None:
    if verb not in (Verb.START, Verb.RESTART):
        return None
    return any(isinstance(action, FetchFiles) for action in actions)


def _differing(
    model: DesiredModel | None,
    now: Running | None,
    fields: Mapping[ModelName, tuple[Fields, Fields]],
    *,
    whole: bool,
) -> tuple[FieldChange, ...]:
    """The fields that are written otherwise now; those of the spec only if `whole`."""
    if model is None or now is None:
        return ()
    spec, routing = fields.get(model.name, ({}, {}))
    found: list[FieldChange] = []
    if tuple(sorted(now.aliases)) != tuple(sorted(model.aliases)):
        found.append(FieldChange(path="aliases", old=[*now.aliases], new=[*model.aliases]))
    if now.routing is not None:
        found += _between(now.routing, routing)
    if whole and now.spec is not None:
        found += _between(now.spec, spec)
    return tuple(sorted(found, key=lambda each: each.path))


def _between(old: Fields, new: Fields) -> list[FieldChange]:
    return [
        FieldChange(path=path, old=old.get(path), new=new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]
