"""What a manifest would change on a node, against what runs there (PURE)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from reconciler.cli.estimate import Fields, changed_needs
from reconciler.plan.actions import Action, FetchFiles, Outlook, StartBackend, StopBackend
from reconciler.plan.changes import STARTING, Change, FieldChange, NodeChanges, Verb
from reconciler.plan.desired import Desired, DesiredModel, Strategy
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName, Nonce, SpecHash
from reconciler.plan.memory import Needs, Pool
from reconciler.plan.observed import (
    FilesMissing,
    FilesState,
    Observed,
    ObservedModel,
    ObservedProcess,
)
from reconciler.plan.phase import State
from reconciler.plan.rehearsal import Rehearsal, files_of, planner_alone, rehearse
from reconciler.plan.shares import share_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One model as an agent tells of it.

    `pid` None: no process. `revision`: what `digest:` would pin. `target_hash`: of the instance
    that is coming. `spec` and `routing` by field; None: the agent does not tell them. `needs`: of
    memory, as the agent has reckoned it by the spec that it wants, `needing`. `gpus`: what its
    process holds.
    """

    name: ModelName
    state: State
    reason: str
    aliases: tuple[str, ...] = ()
    pid: int | None = None
    gpus: tuple[GpuUuid, ...] = ()
    spec_hash: SpecHash | None = None
    digest: FilesDigest | None = None
    revision: str | None = None
    target_hash: SpecHash | None = None
    target_state: State | None = None
    target_reason: str = ""
    spec: Fields | None = None
    routing: Fields | None = None
    needs: Needs = field(default_factory=dict)
    download_bytes: int | None = None
    needing: Fields = field(default_factory=dict)


def changes(
    desired: Desired,
    running: Sequence[Running],
    fields: Mapping[ModelName, tuple[Fields, Fields]],
    refusals: Mapping[ModelName, str] = MappingProxyType({}),
) -> NodeChanges:
    """Compare. `fields`: of each desired model, the fields of its spec and those of its routing.

    `refusals`: why models get no GPUs.
    """
    there = {each.name: each for each in running}
    wanted = {model.name: model for model in desired.models}
    cached = _cached(running)
    observed = Observed(
        processes_read=True,
        models={
            name: _refused(
                _observed(name, there.get(name), wanted.get(name), fields, cached), refusals
            )
            for name in wanted.keys() | there.keys()
        },
        max_parallel_loads=len(wanted) + 1,
    )
    ahead = rehearse(observed, planner_alone(desired, _NOW), _NOW)
    not_here = {other.name: other.reason for other in desired.elsewhere}
    return NodeChanges(
        node=desired.node,
        changes=tuple(
            _change(name, wanted.get(name), there.get(name), ahead, fields, not_here)
            for name in sorted(wanted.keys() | there.keys())
        ),
        elsewhere=tuple(other for other in desired.elsewhere if other.name not in there),
        notes=ahead.last.plan.notes,
    )


_NOW = 0.0
_REMOVED = "removed from the manifest, and not running"
_OF_FILES = ("source", "file", "digest", "format")
_Files = tuple[object, ...]


def _cached(running: Sequence[Running]) -> Mapping[_Files, FilesDigest]:
    """What is known to be in the node's cache, by the fields that say which files."""
    return {
        _files(each.spec): each.digest
        for each in running
        if each.spec is not None and each.digest is not None
    }


def _files(spec: Fields) -> _Files:
    return tuple(spec.get(path) for path in _OF_FILES)


def _refused(seen: ObservedModel, refusals: Mapping[ModelName, str]) -> ObservedModel:
    refusal = refusals.get(seen.name)
    return seen if refusal is None else replace(seen, refusal=refusal)


def _observed(
    name: ModelName,
    now: Running | None,
    model: DesiredModel | None,
    fields: Mapping[ModelName, tuple[Fields, Fields]],
    cached: Mapping[_Files, FilesDigest],
) -> ObservedModel:
    digest = cached.get(_files(fields[name][0])) if name in fields else None
    if now is None:
        return ObservedModel(name=name, files=_files_of(digest))
    if model is not None and now.spec_hash == model.spec_hash:
        digest = now.digest if _pinned(model) in (None, now.revision) else digest
    return ObservedModel(
        name=name,
        processes=_processes(now, model),
        files=_files_of(digest),
        refusal=_refusal(now, model),
    )


def _pinned(model: DesiredModel) -> str | None:
    return model.spec.digest.removeprefix("sha256:") if model.spec.digest is not None else None


def _files_of(digest: FilesDigest | None) -> FilesState:
    return FilesMissing() if digest is None else files_of(digest)


def _processes(now: Running, model: DesiredModel | None) -> tuple[ObservedProcess, ...]:
    if now.pid is None or now.spec_hash is None:
        return ()
    instance = Instance(spec_hash=now.spec_hash, files_digest=now.digest or FilesDigest(""))
    loaded_at = 0.0 if now.state is State.LOADED else None
    return (
        ObservedProcess(
            nonce=Nonce(str(now.pid)),
            pid=now.pid,
            instance=instance,
            started_at=0.0,
            loaded_at=loaded_at,
            gpus=now.gpus,
            gpu_share=model.gpu_share
            if model and model.spec_hash == now.spec_hash
            else share_told(now),
        ),
    )


def share_told(now: Running, devices: Iterable[Gpu] = ()) -> float | None:
    """Of each GPU that its process holds. A size is a share where the memory of those is told."""
    written = (now.spec or {}).get("gpu_memory")
    return share_of(written, devices) if isinstance(written, str) else None


def _refusal(now: Running, model: DesiredModel | None) -> str | None:
    """The agent's own verdict, where it was about this very spec."""
    if model is None or _is_told_to_start(now, model):
        return None
    if now.target_hash == model.spec_hash and now.target_state is State.BLOCKED:
        return now.target_reason
    if now.spec_hash == model.spec_hash and now.state is State.BLOCKED:
        return now.reason
    return None


def _is_told_to_start(now: Running, model: DesiredModel) -> bool:
    """Whether what the agent has found of its memory does not count any more."""
    was = now.needing.get("skip_memory_check", False)
    return bool(now.needs) and model.spec.skip_memory_check and not was


def _change(
    name: ModelName,
    model: DesiredModel | None,
    now: Running | None,
    ahead: Rehearsal,
    fields: Mapping[ModelName, tuple[Fields, Fields]],
    not_here: Mapping[ModelName, str],
) -> Change:
    actions = ahead.of(name)
    outlook = next((each for each in ahead.last.plan.outlook if each.model == name), None)
    verb = _verb(actions)
    differing = _differing(model, now, fields, whole=verb in (Verb.RESTART, Verb.SURGE))
    refusal = (_refusal(now, model) if now is not None else None) or _blocked(outlook)
    reason = outlook.reason if outlook is not None else not_here.get(name, _REMOVED)
    if refusal is not None and verb is Verb.UNCHANGED:
        verb, reason = Verb.REFUSED, refusal
    elif verb is Verb.UNCHANGED and differing:
        verb = Verb.REROUTE
        reason = "changes without a restart"
    elif verb is not Verb.UNCHANGED:
        reason = _reason(name, verb, actions, now, not_here)
        if verb is Verb.SURGE and model is not None and model.strategy is Strategy.AUTO:
            reason += ", if there is memory for both"
    return Change(
        model=name,
        verb=verb,
        reason=reason,
        state=now.state if now is not None else None,
        fields=differing,
        fetch=_fetch(actions, verb),
        source=model.spec.source if model is not None else None,
        fallback=model.fallback.source if model is not None and model.fallback else None,
        needs=_moved(_needs(name, now, fields), actions, now),
        download_bytes=now.download_bytes if now is not None else None,
    )


def _blocked(outlook: Outlook | None) -> str | None:
    """What speaks against what is wanted: GPUs that are not there, or are another model's."""
    if outlook is None:
        return None
    if outlook.target is not None:
        return outlook.target.reason if outlook.target.state is State.BLOCKED else None
    return outlook.reason if outlook.state is State.BLOCKED else None


def _needs(
    name: ModelName, now: Running | None, fields: Mapping[ModelName, tuple[Fields, Fields]]
) -> Needs:
    if now is None or name not in fields:
        return {}
    return changed_needs(now.needs, now.needing, fields[name][0])


def _moved(needs: Needs, actions: Sequence[Action], now: Running | None) -> Needs:
    """On the GPUs that it is started on, where the agent has reckoned with those that it has."""
    start = next((each for each in actions if isinstance(each, StartBackend)), None)
    if start is None or now is None or len(start.gpus) != len(now.gpus):
        return needs
    names = dict(zip(now.gpus, start.gpus, strict=True))
    return {Pool(names.get(GpuUuid(pool), pool)): need for pool, need in needs.items()}


def _verb(actions: Sequence[Action]) -> Verb:
    kinds = [type(each) for each in actions if isinstance(each, StartBackend | StopBackend)]
    if StartBackend not in kinds:
        return Verb.STOP if kinds else Verb.UNCHANGED
    if StopBackend not in kinds:
        return Verb.START
    return Verb.SURGE if kinds[0] is StartBackend else Verb.RESTART


def _reason(
    name: ModelName,
    verb: Verb,
    actions: Sequence[Action],
    now: Running | None,
    not_here: Mapping[ModelName, str],
) -> str:
    if verb is Verb.STOP and name in not_here:
        return not_here[name]
    decisive = StartBackend if verb in (Verb.START, Verb.SURGE) else StopBackend
    said = next(action.reason for action in actions if isinstance(action, decisive))
    if verb is Verb.START and now is not None:
        said += f" (now {now.state}: {now.reason})"
    return said


def _fetch(actions: Sequence[Action], verb: Verb) -> bool | None:
    if verb not in STARTING:
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
