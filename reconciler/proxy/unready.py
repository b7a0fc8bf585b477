"""Why no replica of a known model can take a request: the error for it (PURE)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from reconciler.plan.desired import ModelType
from reconciler.plan.phase import State
from reconciler.proxy.errors import (
    DO_NOT_RETRY,
    LATER_SECONDS,
    NOT_STARTED,
    SOON_SECONDS,
    Header,
    Problem,
    retry_after,
)
from reconciler.proxy.naming import listed
from reconciler.proxy.peers.peer import Peer, PeerModel
from reconciler.status import ModelStatus

NEAREST_FIRST = (
    State.LOADED,
    State.LOADING,
    State.CACHING,
    State.PENDING,
    State.UNLOADING,
    State.STOPPED,
    State.ERROR,
    State.BLOCKED,
    State.DISABLED,
)
_SHOWN = 5
"""Replicas in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unready:
    """One replica. `cause`: a clause about the model, or, without its subject, about the `node`
    (`of_node`). `for_good`: blocked models wait for a person, and one that goes for good for
    nobody: clients shall not insist. `retry_at`: RFC 3339; None: soon."""

    node: str
    state: State
    cause: str
    of_node: bool = False
    is_here: bool = False
    reachable: bool = True
    for_good: bool = False
    retry_at: str | None = None


def here(model: ModelStatus, node: str, *, goes: bool, draining: bool = False) -> Unready:
    """The reason says what the next try waits for. What is loaded and cannot be asked has just
    died, or is being stopped: the next status says so."""
    if draining:
        cause = "is draining"
    elif model.state is State.LOADED:
        cause = "its process is just ending"
    else:
        cause = f"it is {model.state}: {model.reason}"
    return Unready(
        node=node,
        state=model.state,
        cause=cause,
        of_node=draining,
        is_here=True,
        for_good=goes or model.state is State.BLOCKED,
        retry_at=model.retry_at,
    )


def of_peer(peer: Peer, model: PeerModel) -> Unready:
    if not peer.reachable:
        cause = f"cannot be reached: {peer.because}"
    elif peer.draining:
        cause = "is draining"
    elif model.state is State.LOADED:
        cause = "its process is just ending"
    else:
        cause = f"it is {model.state}: {model.reason}"
    return Unready(
        node=peer.node or str(peer.address),
        state=model.state,
        cause=cause,
        of_node=peer.draining or not peer.reachable,
        reachable=peer.reachable,
        for_good=peer.reachable and model.state in (State.BLOCKED, State.DISABLED),
        retry_at=model.retry_at,
    )


def other_type(peer: Peer, model: PeerModel) -> Unready:
    """It has the name, and is another thing."""
    cause = f"it is of type {model.type} there"
    return Unready(node=peer.node or str(peer.address), state=model.state, cause=cause)


def not_asked(peer: Peer, model: PeerModel, refusal: Problem) -> Unready:
    """It would answer, and this node refuses all requests all the same."""
    cause = f"serves, and gets no request from here: {refusal.code}"
    return Unready(node=peer.node or str(peer.address), state=model.state, cause=cause)


def model_disabled(model: str, serving: tuple[str, ...]) -> Problem:
    """`serving`: nodes that do, by another manifest than this one's."""
    others = f" of this node; by theirs it serves on {listed(serving, _SHOWN)}" if serving else ""
    return Problem(
        status=503,
        code="model_disabled",
        message=f"cannot answer for model {model!r}: it is disabled in the manifest{others}",
        headers=(DO_NOT_RETRY, NOT_STARTED),
        model=model,
    )


def model_not_ready(model: str, replicas: Sequence[Unready], *, now: float) -> Problem:
    """In the state of the replica that is nearest to serving; that one is named first. `now`: Unix
    time."""
    ranked = sorted(replicas, key=_distance)
    if all(each.for_good for each in ranked):
        headers: tuple[Header, ...] = (DO_NOT_RETRY, NOT_STARTED)
    else:
        headers = retry_after(min(_wait_seconds(each, now) for each in ranked if not each.for_good))
    return Problem(
        status=503,
        code="model_not_ready",
        message=f"cannot answer for model {model!r}: {_causes(ranked)}",
        headers=headers,
        model=model,
    )


def name_gone(name: str, model: str, kept_seconds: float) -> Problem:
    """`model`: what it meant."""
    meant = f", which meant {model}," if name != model else ""
    message = (
        f"cannot answer for model {name!r}: the name{meant} has just gone. While the nodes read a "
        "new manifest one after the other, another one may have it in a moment; "
        f"{kept_seconds:.0f} s after it went it counts as unknown"
    )
    return Problem(
        status=503,
        code="model_not_ready",
        message=message,
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def type_gone(types: tuple[ModelType, ...], model: str) -> Problem:
    """`model`: one that there was."""
    return Problem(
        status=503,
        code="no_model_of_type",
        message=f"cannot route the request: no model of type {' or '.join(types)} is there any "
        f"more, and {model} has just gone; another node may have it in a moment",
        headers=retry_after(SOON_SECONDS),
    )


def not_taken_up(model: str, nodes: tuple[str, ...]) -> Problem:
    """`nodes`: that the manifest names for it."""
    message = (
        f"cannot answer for model {model!r}: the manifest has it for "
        f"{listed(nodes, _SHOWN)}, where it is not known yet"
    )
    return Problem(
        status=503,
        code="model_not_ready",
        message=message,
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def peer_unreachable(model: str, node: str) -> Problem:
    return Problem(
        status=503,
        code="peer_unreachable",
        message=f"cannot reach node {node} for model {model!r}: it takes no connection",
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def peer_lost(model: str, node: str) -> Problem:
    """No NOT_STARTED: it may have begun."""
    message = (
        f"cannot get an answer for model {model!r} from node {node}: it went away or hung "
        "before it answered, or its answer is not valid HTTP"
    )
    return Problem(status=502, code="peer_lost", message=message, model=model)


def peer_lost_midway(model: str, node: str) -> Problem:
    message = (
        f"cannot finish the answer of model {model!r}: node {node} went away or fell silent, its "
        "answer is not valid HTTP, or this agent ends"
    )
    return Problem(status=502, code="peer_lost", message=message, model=model)


def peer_refused(model: str, node: str, status: int) -> Problem:
    return Problem(
        status=503,
        code="peer_refused",
        message=f"cannot answer for model {model!r}: node {node} did not ({status})",
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def all_pause(model: str, replicas: int) -> Problem:
    """Their breakers are open, and one of them is tried just now."""
    message = (
        f"cannot answer for model {model!r}: all {replicas} replicas failed lately, and one is "
        "being tried again just now"
    )
    return Problem(
        status=503, code="replicas_failing", message=message, headers=retry_after(1), model=model
    )


def _distance(replica: Unready) -> tuple[bool, int]:
    return (not replica.reachable, NEAREST_FIRST.index(replica.state))


def _wait_seconds(replica: Unready, now: float) -> int:
    if replica.retry_at is None:
        return SOON_SECONDS
    due = math.ceil(datetime.fromisoformat(replica.retry_at).timestamp() - now)
    return min(max(1, due), LATER_SECONDS)


def _causes(ranked: Sequence[Unready]) -> str:
    if len(ranked) == 1 and ranked[0].is_here and not ranked[0].of_node:
        return ranked[0].cause
    said = [
        f"node {each.node} {each.cause}" if each.of_node else f"on {each.node} {each.cause}"
        for each in ranked[:_SHOWN]
    ]
    if len(ranked) > _SHOWN:
        said.append(f"and on {len(ranked) - _SHOWN} more nodes it does not serve either")
    return "; ".join(said)
