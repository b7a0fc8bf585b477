"""Why a request goes where it goes: as JSON, with every figure (PURE)."""

from typing import Any

import msgspec

from reconciler.proxy import balance, unready
from reconciler.proxy.balance import Scored
from reconciler.proxy.errors import Problem
from reconciler.proxy.replicas import Ranking, has_slot
from reconciler.proxy.route_table import Choice, Route, RouteTable
from reconciler.proxy.unready import Unready
from reconciler.status import Json

_IN_A_HEADER = 8
"""Candidates: clients do not take heads of any size."""


def in_a_header(choice: Choice, ranking: Ranking, found: Scored) -> bytes:
    """On one line, in ASCII."""
    told = {
        "model": choice.name,
        **_chosen(found),
        **_figures(ranking, ranking.every[:_IN_A_HEADER]),
    }
    return msgspec.json.encode(told).decode().encode("ascii", "backslashreplace")


def whole(
    table: RouteTable, route: Route, ranking: Ranking | None, refusal: Problem | None
) -> Json:
    """Of all replicas. `ranking`: None: the request is refused."""
    found = None
    if ranking is not None and ranking.admitted:
        found = ranking.with_a_slot() or ranking.admitted[0]
    return {
        "api": 1,
        "node": table.status.node,
        "model": route.name,
        "type": route.type,
        "chosen": None if found is None else _chosen(found),
        "refusal": None if refusal is None else _refusal(refusal),
        **(_figures(ranking, ranking.every) if ranking is not None else {"candidates": []}),
        "not_eligible": [_not_eligible(each) for each in _others(table, route, refusal)],
    }


def _chosen(found: Scored) -> Json:
    candidate = found.candidate
    return {
        "node": candidate.node,
        "address": None if candidate.address is None else str(candidate.address),
        "why": found.why,
        "waits": not has_slot(candidate),
    }


def _figures(ranking: Ranking, shown: tuple[Scored, ...]) -> dict[str, Any]:
    wish, admitted = ranking.wish, {id(each) for each in ranking.admitted}
    told: dict[str, Any] = balance.explain(
        shown, affinity=wish.affinity, key=wish.key, tie=wish.tie
    )
    for entry, scored in zip(told["candidates"], shown, strict=True):
        entry["admitted"] = id(scored) in admitted
        entry["has_slot"] = has_slot(scored.candidate)
    return told


def _refusal(problem: Problem) -> Json:
    return {"status": problem.status, "code": problem.code, "message": problem.message}


def _others(table: RouteTable, route: Route, refusal: Problem | None) -> list[Unready]:
    status, here = table.status, route.here
    found = []
    if here is not None and (status.draining or here.endpoint is None):
        found.append(unready.here(here, status.node, goes=False, draining=status.draining))
    for peer in table.peers.all:
        model = peer.models.get(route.name)
        if model is not None and model.type is not route.type:
            found.append(unready.other_type(peer, model))
    for each in route.away:
        if not each.serves:
            found.append(unready.of_peer(each.peer, each.model))
        elif refusal is not None:
            found.append(unready.not_asked(each.peer, each.model, refusal))
    return found


def _not_eligible(replica: Unready) -> Json:
    return {"node": replica.node, "reachable": replica.reachable, "reason": replica.cause}
