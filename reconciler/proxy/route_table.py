"""Which backend answers for a request: a pure function of the status (PURE)."""

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.plan.desired import ModelType
from reconciler.plan.phase import State
from reconciler.proxy import errors
from reconciler.proxy.errors import Problem
from reconciler.status import Endpoint, ModelStatus, Status

Types = tuple[ModelType, ...]
"""Any of which will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """Derived once per status. `by_name` holds names and aliases, `by_type` no disabled models."""

    status: Status
    by_name: Mapping[str, ModelStatus]
    by_type: Mapping[ModelType, tuple[ModelStatus, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Send the request there. `renamed`: the body says an alias; the backend knows `model` only."""

    model: ModelStatus
    endpoint: Endpoint
    renamed: bool


def build(status: Status) -> RouteTable:
    aliases = {alias: model for model in status.models for alias in model.aliases}
    names: dict[str, ModelStatus] = {model.name: model for model in status.models}
    enabled = [model for model in status.models if model.state is not State.DISABLED]
    by_type = {t: tuple(model for model in enabled if model.type is t) for t in ModelType}
    return RouteTable(status=status, by_name=aliases | names, by_type=by_type)


def choose(
    table: RouteTable, requested: str | None, wanted: Types, *, now: float
) -> Choice | Problem:
    """What to do with a request for `requested` (None: it names no model) at a path of some types.

    What no wait can mend is said first: unknown, wrong type, disabled, then not ready. `now`: Unix
    time, to say how long that may take.
    """
    if table.status.draining:
        return errors.draining(table.status.node)
    model = _named(table, requested) if requested is not None else _only(table, wanted)
    if isinstance(model, Problem):
        return model
    if model.type not in wanted:
        return errors.wrong_type(model, wanted)
    if model.state is State.DISABLED:
        return errors.model_disabled(model)
    if model.endpoint is None:
        return errors.model_not_ready(model, now, goes=_goes(table, model))
    renamed = requested is not None and requested != model.name
    return Choice(model=model, endpoint=model.endpoint, renamed=renamed)


def _goes(table: RouteTable, model: ModelStatus) -> bool:
    """Whether it ends since the manifest does not have it any more, or disables it."""
    ends = model.state in (State.UNLOADING, State.STOPPED)
    return ends and not model.detail.enabled and table.status.unknown_because is None


def _named(table: RouteTable, requested: str) -> ModelStatus | Problem:
    model = table.by_name.get(requested)
    if model is None and table.status.unknown_because is not None:
        return errors.node_starting(table.status.unknown_because)
    if model is None:
        return errors.unknown_model(requested, tuple(sorted(table.by_name)))
    return model


def _only(table: RouteTable, wanted: Types) -> ModelStatus | Problem:
    models = [model for type_ in wanted for model in table.by_type[type_]]
    if not models and table.status.unknown_because is not None:
        return errors.node_starting(table.status.unknown_because)
    if not models and table.status.revision.applied is None:
        return errors.none_of_type_yet(wanted)
    if not models:
        return errors.none_of_type(wanted)
    if len(models) > 1:
        return errors.model_required(wanted, tuple(sorted(model.name for model in models)))
    return models[0]
