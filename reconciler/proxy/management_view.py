"""The status and the plan as JSON for operators (PURE). docs/management.md documents the shapes."""

from collections.abc import Sequence
from dataclasses import asdict, fields

from reconciler.attempt import Attempt
from reconciler.events import Event
from reconciler.masking import masked_values
from reconciler.plan.actions import Action, Outlook
from reconciler.plan.desired import ModelSpec
from reconciler.plan.memory import figures_of
from reconciler.proxy.as_of import doubted, honest, moment
from reconciler.proxy.view import InFlight, one_model
from reconciler.pulse import Beat
from reconciler.status import Json, ModelDetail, ModelStatus, Planned, Status, UnderWay


def models(status: Status, in_flight: InFlight, beat: Beat) -> Json:
    status = honest(status, beat)
    return {
        "api": 1,
        "node": status.node,
        "version": status.version,
        "revision": {"applied": status.revision.applied, "attempted": status.revision.attempted},
        "models": [model(each, in_flight) for each in status.models],
        "elsewhere": [{"name": each.name, "reason": each.reason} for each in status.elsewhere],
        **moment(beat),
    }


def one(status: ModelStatus, in_flight: InFlight, beat: Beat) -> Json:
    """A model by itself."""
    return {**model(doubted(status, beat), in_flight), **moment(beat)}


def model(status: ModelStatus, in_flight: InFlight) -> Json:
    """All of the cluster's view, and what only operators of this node need."""
    detail = status.detail
    return {
        **one_model(status, in_flight),
        "enabled": detail.enabled,
        "priority": detail.priority,
        "max_in_flight": status.max_in_flight,
        "place": str(detail.place) if detail.place else None,
        "spec": _spec(detail.spec) if detail.spec else None,
        "timeouts": asdict(detail.timeouts) if detail.timeouts else None,
        "argv": detail.argv,
        "passed_over": detail.passed_over,
        "started_at": detail.started_at,
        "loaded_at": detail.loaded_at,
        "load_seconds": detail.load_seconds,
        "expected_load_seconds": detail.expected_load_seconds,
        "restart_causes": dict(detail.restart_causes),
        "failure": _failure(detail),
        **figures_of(detail.needs),
        "download_bytes": detail.download_bytes,
    }


def plan(planned: Planned | None, node: str) -> Json:
    """`planned` None: no tick has ended yet."""
    shown = planned.plan if planned else None
    return {
        "api": 1,
        "node": node,
        "at": planned.at if planned else None,
        "revision": planned.revision if planned else None,
        "next_at": planned.next_at if planned else None,
        "waits": planned.waits if planned else (),
        "actions": [_action(each) for each in shown.actions] if shown else [],
        "held": [_action(each) for each in shown.held] if shown else [],
        "under_way": [_under_way(each) for each in planned.under_way] if planned else [],
        "models": [_outlook(each) for each in shown.outlook] if shown else [],
    }


def history(attempts: Sequence[Attempt], node: str) -> Json:
    return {"api": 1, "node": node, "revisions": [asdict(each) for each in reversed(attempts)]}


def event(told: Event) -> Json:
    return {
        "seq": told.seq,
        "time": told.time,
        "kind": told.kind,
        "level": told.level,
        "node": told.node,
        "model": told.model,
        "reason": told.reason,
        "data": told.data,
    }


def _spec(spec: ModelSpec) -> Json:
    """Every field of it; a secret that stands in it all the same does not show."""
    shown = {field.name: getattr(spec, field.name) for field in fields(ModelSpec)}
    return {
        **shown,
        "extra_args": masked_values(spec.extra_args),
        "env": masked_values(spec.env),
    }


def _failure(detail: ModelDetail) -> Json | None:
    if not detail.failures:
        return None
    return {
        "count": detail.failures_in_a_row,
        "permanent": detail.permanent,
        "recent": [
            {"at": note.at, "during": note.during, "reason": note.reason}
            for note in detail.failures
        ],
    }


def _action(action: Action) -> Json:
    return {"action": type(action).__name__, **_plain(asdict(action))}


def _plain(values: Json) -> Json:
    """An instance's two fields stand beside the action's own."""
    instance = values.pop("instance", None)
    return {**values, **instance} if isinstance(instance, dict) else values


def _under_way(effect: UnderWay) -> Json:
    return {
        "model": effect.model,
        "kind": effect.kind,
        "since": effect.since,
        "detail": effect.detail,
        "pid": effect.pid,
    }


def _outlook(outlook: Outlook) -> Json:
    target = outlook.target
    return {
        "name": outlook.model,
        "state": outlook.state,
        "reason": outlook.reason,
        "target": {"spec_hash": target.spec_hash, "state": target.state, "reason": target.reason}
        if target
        else None,
        "asked_again": outlook.asked_again,
        "draining": [
            {"pid": each.pid, "spec_hash": each.spec_hash, "reason": each.reason}
            for each in outlook.draining
        ],
        **figures_of(outlook.needs),
        "download_bytes": outlook.download_bytes,
    }
