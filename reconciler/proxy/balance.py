"""Which of several replicas a request goes to, and why (PURE)."""

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Address
from reconciler.proxy.peers.load import ModelLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One loaded replica. `address`: None: it is on this node. `load`: with what we have sent there
    and it does not count yet. `slots`: how many requests it works on at a time; None: any number.
    `first_byte_seconds`: lately, decaying; `serving_seconds`: for how long; None: not known, or
    long. `gpu_free_bytes`: of its node."""

    node: NodeName
    address: Address | None
    load: ModelLoad
    slots: int | None = None
    gpu_free_bytes: int | None = None
    first_byte_seconds: float | None = None
    serving_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A candidate in its place. `score`: smaller is better, compared from the left. `why`: one
    clause that names the figures that decide."""

    candidate: Candidate
    score: tuple[float, ...]
    why: str


def rank(candidates: Sequence[Candidate]) -> tuple[Scored, ...]:
    """Best first: fewest in flight per slot, then this node."""
    scored = [_scored(candidate) for candidate in candidates]
    return tuple(sorted(scored, key=lambda each: (each.score, each.candidate.node)))


def _scored(candidate: Candidate) -> Scored:
    busy = candidate.load.in_flight + candidate.load.waiting
    per_slot = busy / (candidate.slots or 1)
    away = candidate.address is not None
    where = f"at {candidate.address}" if away else "on this node"
    return Scored(
        candidate=candidate,
        score=(per_slot, float(away)),
        why=f"{busy} in flight or waiting for {candidate.slots or 'any number of'} slots, {where}",
    )
