"""What an agent tells of its models, in the terms of a comparison (PURE)."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields

from reconciler.cli.changes import Running
from reconciler.cli.client import Json
from reconciler.cli.estimate import Fields
from reconciler.errors import Rejected
from reconciler.masking import masked_values
from reconciler.plan.changes import Change, Verb
from reconciler.plan.changes_json import needs_from_json
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.ids import FilesDigest, GpuUuid, ModelName, SpecHash
from reconciler.plan.phase import State
from reconciler.plan.wording import as_written

_BY_KEY = ("extra_args", "env")
"""Fields of a spec that are compared key by key."""

_VERBS = {
    State.LOADED: Verb.UNCHANGED,
    State.DISABLED: Verb.UNCHANGED,
    State.STOPPED: Verb.UNCHANGED,
    State.UNLOADING: Verb.STOP,
    State.BLOCKED: Verb.REFUSED,
    State.PENDING: Verb.START,
    State.CACHING: Verb.START,
    State.LOADING: Verb.START,
    State.ERROR: Verb.START,
}
"""What it takes from a state to rest, where nothing else is coming."""

_GOES_ON = frozenset({State.LOADING, State.UNLOADING})
"""What was begun before the node was suspended comes to its end."""


def running_of(entry: Json) -> Running:
    """One model of an agent's list. What it does not tell is None.

    Its spec is that of the manifest in force: while another instance is coming, what runs is not
    that one, and nothing is said of it.
    """
    target = entry.get("target") or {}
    spec, timeouts = entry.get("spec"), entry.get("timeouts")
    return Running(
        name=ModelName(entry["name"]),
        state=_state(entry["state"]),
        reason=str(entry.get("reason", "")),
        aliases=tuple(entry.get("aliases", ())),
        pid=entry.get("pid"),
        gpus=tuple(map(GpuUuid, entry.get("gpu_ids") or ())),
        spec_hash=_hash(entry.get("spec_hash")),
        digest=FilesDigest(entry["digest"]) if entry.get("digest") else None,
        revision=entry.get("prefix_digest"),
        target_hash=_hash(target.get("spec_hash")),
        target_state=_state(target["state"]) if target else None,
        target_reason=str(target.get("reason", "")),
        spec=_flat(spec) if spec and not target else None,
        routing=_routing(entry.get("priority", 0), entry.get("max_in_flight"), timeouts)
        if timeouts
        else None,
        needs=needs_from_json(entry),
        download_bytes=entry.get("download_bytes"),
        needing=_flat(spec) if spec else {},
    )


def fields_of(model: DesiredModel) -> tuple[Fields, Fields]:
    """A desired model's fields as an agent tells them: those of the spec, and the others."""
    spec = {field.name: getattr(model.spec, field.name) for field in fields(ModelSpec)}
    written = {
        name: masked_values(value) if name in _BY_KEY else _plain(value)
        for name, value in spec.items()
    }
    return _flat(written), _routing(model.priority, model.max_in_flight, asdict(model.timeouts))


def is_suspended(view: Json) -> bool:
    """Whether a node, as the cluster tells of it, only observes and reports."""
    return any(
        (each["type"], each["status"]) == ("Suspended", "True")
        for each in view.get("conditions", ())
    )


def planned_by(entry: Json, *, suspended: bool) -> Change:
    """One model of an agent's own plan: what it is about to do, or is doing.

    What is held back on a node that is `suspended` is no change, as it is none in a comparison.
    """
    target = entry.get("target")
    state = _state(entry["state"])
    coming = _state(target["state"]) if target else state
    if coming is State.BLOCKED:
        verb = Verb.REFUSED
    elif entry.get("asked_again") and not target:  # it runs: nothing is started
        verb = Verb.UNCHANGED
    elif suspended:
        verb = _VERBS[state] if state in _GOES_ON else Verb.UNCHANGED
    elif target:
        both = state is State.LOADED and coming is State.LOADING
        verb = Verb.SURGE if both else Verb.RESTART
    else:
        verb = _VERBS[state]
    reason = str(entry["reason"] if verb is Verb.UNCHANGED or not target else target["reason"])
    return Change(
        model=ModelName(entry["name"]),
        verb=verb,
        reason=reason,
        state=state,
        needs=needs_from_json(entry),
        download_bytes=entry.get("download_bytes"),
    )


def _state(told: str) -> State:
    try:
        return State(told)
    except ValueError as exc:
        raise Rejected(
            f"cannot understand the agent: it tells a state {told!r}; "
            "it is a newer release than this command"
        ) from exc


def _hash(value: object) -> SpecHash | None:
    return SpecHash(value) if isinstance(value, str) else None


def _flat(spec: Mapping[str, object]) -> Fields:
    """Only what is not the default: an agent may tell either way."""
    flat: dict[str, object] = {}
    for name, value in spec.items():
        if isinstance(value, Mapping) and name in _BY_KEY:
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name not in _DEFAULTS or value != _DEFAULTS[name]:
            flat[name] = value
    return flat


def _routing(priority: object, max_in_flight: object, timeouts: Mapping[str, object]) -> Fields:
    """Durations as a manifest has them."""
    written = {f"timeouts.{name}": _duration(each) for name, each in timeouts.items()}
    return {"priority": priority, "max_in_flight": max_in_flight, **written}


def _duration(seconds: object) -> object:
    return as_written(seconds) if isinstance(seconds, int | float) else seconds


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


_DEFAULTS = {
    field.name: _plain(field.default) for field in fields(ModelSpec) if field.default is not MISSING
}
