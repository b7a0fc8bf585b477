"""Which replicas answer for a request: a pure function of the status and the peers (PURE)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.plan.desired import Affinity, Elsewhere, ModelType
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.peering import Address
from reconciler.plan.phase import State
from reconciler.proxy import errors, unheard, unready
from reconciler.proxy.errors import Problem
from reconciler.proxy.peers.peer import NOBODY, Peer, PeerModel, Peers
from reconciler.status import Endpoint, ModelStatus, Status

Types = tuple[ModelType, ...]
"""Any of which will do."""
_NAMED = 5
"""Nodes in one message."""
_MOST_GONE = 1000
"""Names that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A replica at a peer. `serves`: requests may be sent there."""

    peer: Peer
    model: PeerModel
    serves: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One model of the cluster. `here`: as this node has it; None: it does not. `away`: at peers,
    those that can be reached first; `serving`: those of them that requests may be sent to.
    `served_by`: what answers say that come from this node's."""

    name: ModelName
    type: ModelType
    enabled: bool
    affinity: Affinity
    here: ModelStatus | None = None
    away: tuple[Remote, ...] = ()
    serving: tuple[Remote, ...] = ()
    served_by: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A name that no node has any more. `at`: Unix time, when that was seen."""

    model: ModelName
    type: ModelType
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTable:
    """Derived once per status and peers. `by_name` holds names and aliases, `by_type` no disabled
    models, `here` the names and aliases of this node's own, `remotes` what each peer has, `gone`
    names that an older table had."""

    status: Status
    peers: Peers
    here: Mapping[str, ModelStatus]
    routes: tuple[Route, ...]
    by_name: Mapping[str, Route]
    by_type: Mapping[ModelType, tuple[Route, ...]]
    remotes: Mapping[Address, tuple[Remote, ...]]
    gone: Mapping[str, Gone] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Send the request to one of these. `endpoint`: this node's; None: only peers serve. `renamed`:
    the body says an alias; backends know the name only."""

    route: Route
    endpoint: Endpoint | None
    renamed: bool

    @property
    def name(self) -> ModelName:
        return self.route.name


def build(
    status: Status,
    peers: Peers = NOBODY,
    before: RouteTable | None = None,
    *,
    now: float | None = None,
) -> RouteTable:
    """Where two mean different things by a name, this node's manifest counts, then the first of the
    peers; names count before aliases. An alias that any node knows leads to all replicas of its
    model: they are asked by the model's name. `before`: an older table, of which is taken what
    still holds: of many peers few change at a time. `now`: Unix time, from when on its other names
    have gone; None: they are unknown at once, since this node alone decides."""
    own = {model.name: model for model in status.models}
    remotes = _remotes(peers, before.remotes if before is not None else {})
    away = _away(remotes.values())
    routes = {name: _route(model, status.node, away.get(name, ())) for name, model in own.items()}
    foreign = {name: _foreign(found) for name, found in away.items() if name not in own}
    every = (*routes.values(), *foreign.values())
    by_name = _by_name(status, routes, foreign, remotes.values())
    return RouteTable(
        status=status,
        peers=peers,
        here={alias: model for model in status.models for alias in model.aliases} | own,
        routes=every,
        by_name=by_name,
        by_type={
            wanted: tuple(route for route in every if route.enabled and route.type is wanted)
            for wanted in ModelType
        },
        remotes=remotes,
        gone=_gone(before, by_name, now) if before is not None and now is not None else {},
    )


def choose(
    table: RouteTable, requested: str | None, wanted: Types, *, now: float, begun: bool = False
) -> Choice | Problem:
    """What to do with a request for `requested` (None: it names no model) at a path of some types.

    What no wait can mend is said first: unknown, wrong type, disabled, then not ready. `now`: Unix
    time, to say how long that may take. `begun`: it was taken in before, and is waited for.
    """
    draining = table.status.draining
    if draining and (not table.peers.all or (table.status.closed and not begun)):
        return errors.draining(table.status.node)
    route = table.by_name.get(requested) if requested is not None else _only(table, wanted, now)
    if route is None:
        assert requested is not None
        return not_known(table, requested, tuple(sorted(table.by_name)), now=now)
    if isinstance(route, Problem):
        return route
    if route.type not in wanted:
        return errors.wrong_type(route, wanted)
    if not route.enabled:
        serving = tuple(str(each.peer.node) for each in route.serving)
        return unready.model_disabled(route.name, serving)
    endpoint = route.here.endpoint if route.here is not None and not draining else None
    if endpoint is None and not route.serving:
        return _not_ready(table, route, now)
    renamed = requested is not None and requested != route.name
    return Choice(route=route, endpoint=endpoint, renamed=renamed)


def not_known(table: RouteTable, requested: str, known: tuple[str, ...], *, now: float) -> Problem:
    """The answer where no route has the name. `known`: to say what there is. `now`: Unix time."""
    if table.status.unknown_because is not None:
        return errors.node_starting(table.status.unknown_because)
    gone = table.gone.get(requested)
    if gone is not None and _lately(gone, now):
        return unready.name_gone(requested, gone.model, errors.UNSURE_SECONDS)
    told = _told(table.status.elsewhere, requested)
    if told is not None:
        return _nowhere(table, told, requested)
    if fresh := unheard.lately(table.peers.unheard, now):
        return unheard.name_unheard(requested, fresh)
    return errors.unknown_model(requested, known, alone=not table.peers.all)


def _told(elsewhere: Sequence[Elsewhere], requested: str) -> Elsewhere | None:
    """Names count before aliases."""
    named = [each for each in elsewhere if each.name == requested]
    return next(iter(named or [each for each in elsewhere if requested in each.aliases]), None)


def _nowhere(table: RouteTable, told: Elsewhere, requested: str) -> Problem:
    """Of a model of this node's manifest that no node has."""
    named = [peer for peer in table.peers.all if peer.node in told.nodes]
    applied = table.status.revision.applied
    late = {str(each.node) for each in named if not each.reachable or each.applied != applied}
    if late:
        return unready.not_taken_up(told.name, tuple(sorted(late)))
    unknown = sorted(set(told.nodes) - {peer.node for peer in named})
    if unknown and table.peers.unheard:
        return unheard.model_unheard(told.name, tuple(unknown), table.peers.unheard)
    if not table.peers.all:
        return errors.runs_nowhere(requested, told.name, f"does not run here ({told.reason})")
    called = f"; no known node is called {' or '.join(unknown[:_NAMED])}" if unknown else ""
    return errors.runs_nowhere(requested, told.name, f"runs at no node ({told.reason}){called}")


def _gone(before: RouteTable, by_name: Mapping[str, Route], now: float) -> Mapping[str, Gone]:
    """The oldest first."""
    found = {
        name: gone
        for name, gone in before.gone.items()
        if name not in by_name and _lately(gone, now)
    }
    for name in sorted(before.by_name.keys() - by_name.keys()):
        route = before.by_name[name]
        found[name] = Gone(model=route.name, type=route.type, at=now)
    return dict(list(found.items())[-_MOST_GONE:])


def _lately(gone: Gone, now: float) -> bool:
    """The nodes read a new manifest one after the other. Clocks may be set back."""
    return abs(now - gone.at) < errors.UNSURE_SECONDS


def _remotes(
    peers: Peers, before: Mapping[Address, tuple[Remote, ...]]
) -> Mapping[Address, tuple[Remote, ...]]:
    """By peer, those that can be reached first."""
    reached: dict[Address, tuple[Remote, ...]] = {}
    others: dict[Address, tuple[Remote, ...]] = {}
    for peer in peers.all:
        known = before.get(peer.address, ())
        if not known or known[0].peer is not peer:
            known = _of(peer)
        (reached if peer.reachable else others)[peer.address] = known
    return reached | others


def _of(peer: Peer) -> tuple[Remote, ...]:
    answers = peer.reachable and not peer.draining and peer.node is not None
    return tuple(
        Remote(peer=peer, model=model, serves=answers and model.serves)
        for model in peer.models.values()
    )


def _away(remotes: Iterable[tuple[Remote, ...]]) -> Mapping[ModelName, tuple[Remote, ...]]:
    found: dict[ModelName, list[Remote]] = {}
    for of_peer in remotes:
        for remote in of_peer:
            found.setdefault(remote.model.name, []).append(remote)
    return {name: tuple(replicas) for name, replicas in found.items()}


def _route(model: ModelStatus, node: NodeName, replicas: tuple[Remote, ...]) -> Route:
    away = tuple(each for each in replicas if each.model.type is model.type)
    return Route(
        name=model.name,
        type=model.type,
        enabled=model.state is not State.DISABLED,
        affinity=model.affinity,
        here=model,
        away=away,
        serving=tuple(each for each in away if each.serves),
        served_by=f"{node}/{model.name}".encode(),
    )


def _foreign(replicas: tuple[Remote, ...]) -> Route:
    """Of a model that this node has not: it is as the first says that has it enabled."""
    first = next((each for each in replicas if each.model.enabled), replicas[0])
    away = tuple(each for each in replicas if each.model.type is first.model.type)
    return Route(
        name=first.model.name,
        type=first.model.type,
        enabled=first.model.enabled,
        affinity=first.model.affinity,
        away=away,
        serving=tuple(each for each in away if each.serves),
    )


def _by_name(
    status: Status,
    own: Mapping[ModelName, Route],
    foreign: Mapping[ModelName, Route],
    remotes: Iterable[tuple[Remote, ...]],
) -> Mapping[str, Route]:
    """The last that has a name counts. This node's manifest says also what an alias means whose
    model other nodes have."""
    every: Mapping[ModelName, Route] = {**foreign, **own}
    found = _aliases_of_peers(every, remotes)
    found.update((route.name, route) for route in foreign.values())
    for other in status.elsewhere:
        if (route := every.get(other.name)) is not None:
            found.update(dict.fromkeys(other.aliases, route))
    for model in status.models:
        found.update(dict.fromkeys(model.aliases, own[model.name]))
    found.update((route.name, route) for route in own.values())
    return found


def _aliases_of_peers(
    every: Mapping[ModelName, Route], remotes: Iterable[tuple[Remote, ...]]
) -> dict[str, Route]:
    """Of two that mean different things by one the first counts, before those that have their
    model disabled. What is of another type there says nothing of ours."""
    found: dict[str, Route] = {}
    disabled: dict[str, Route] = {}
    for of_peer in remotes:
        for model in (each.model for each in of_peer if each.model.aliases):
            route = every[model.name]
            if model.type is route.type:
                for alias in model.aliases:
                    (found if model.enabled else disabled).setdefault(alias, route)
    return disabled | found


def _only(table: RouteTable, wanted: Types, now: float) -> Route | Problem:
    routes = [route for type_ in wanted for route in table.by_type[type_]]
    if not routes:
        return _none(table, wanted, now)
    if len(routes) > 1:
        return errors.model_required(wanted, tuple(sorted(route.name for route in routes)))
    return routes[0]


def _none(table: RouteTable, wanted: Types, now: float) -> Problem:
    if table.status.unknown_because is not None:
        return errors.node_starting(table.status.unknown_because)
    if table.peers.unheard:
        return unheard.type_unheard(wanted, table.peers.unheard)
    for gone in table.gone.values():
        if gone.type in wanted and _lately(gone, now):
            return unready.type_gone(wanted, gone.model)
    if table.status.revision.applied is None:
        return errors.none_of_type_yet(wanted)
    return errors.none_of_type(wanted, alone=not table.peers.all)


def _not_ready(table: RouteTable, route: Route, now: float) -> Problem:
    status, here = table.status, route.here
    if here is not None and here.endpoint is not None:
        return errors.draining(status.node)
    found = [unready.of_peer(each.peer, each.model) for each in route.away]
    if here is not None:
        found.insert(0, unready.here(here, status.node, goes=_goes(status, here)))
    return unready.model_not_ready(route.name, found, now=now)


def _goes(status: Status, model: ModelStatus) -> bool:
    """Whether it ends since the manifest does not have it any more, or disables it."""
    ends = model.state in (State.UNLOADING, State.STOPPED)
    return ends and not model.detail.enabled and status.unknown_because is None
