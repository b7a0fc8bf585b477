"""OpenAI's list of models, over all nodes: an entry for each name and alias (PURE)."""

from collections.abc import Iterable

from reconciler.plan.desired import ModelType
from reconciler.plan.phase import State
from reconciler.proxy import unready
from reconciler.proxy.route_table import Choice, Route, RouteTable, choose
from reconciler.status import Json


def model_list(table: RouteTable, only: ModelType | None = None) -> Json:
    """In alphabetical order. `only`: the type that a path is about."""
    return {"object": "list", "data": [_entry(table, *each) for each in _named(table, only)]}


def model_entry(table: RouteTable, name: str, only: ModelType | None = None) -> Json | None:
    found = (each for each in _named(table, only) if each[0] == name)
    return next((_entry(table, *each) for each in found), None)


def model_names(table: RouteTable, only: ModelType | None = None) -> tuple[str, ...]:
    return tuple(name for name, _ in _named(table, only))


def _named(table: RouteTable, only: ModelType | None) -> Iterable[tuple[str, Route]]:
    named = table.by_name.items()
    return sorted((each for each in named if only is None or each[1].type is only), key=_name)


def _name(named: tuple[str, Route]) -> str:
    return named[0]


def _entry(table: RouteTable, name: str, route: Route) -> Json:
    return {
        "id": name,
        "object": "model",
        "created": 0,  # OpenAI's type wants a number; when a model was made is not known
        "owned_by": "xgen-model",
        "root": route.name,
        "type": route.type,
        "state": _state(route),
        "ready": isinstance(choose(table, name, (route.type,), now=0.0), Choice),
    }


def _state(route: Route) -> State:
    """Of the replica that is nearest to serving."""
    states = [each.model.state for each in route.serving or route.away]
    if route.here is not None:
        states.append(route.here.state)
    return min(states, key=unready.NEAREST_FIRST.index)
