"""Which of several replicas a request goes to, and why (PURE).

Compared one after the other (design §10): the breaker; how loaded the replica would be with this
request, in steps of half its slots; how tight its KV cache or GPU memory is; the load exactly; the
local node; a draw. Steps, because small differences that are old or noise shall not send everybody
to one replica.

The load is what is in flight per slot, times how much longer its first bytes lately took than the
best one's: 1, 2, 4, 8 or 16 times. That is about the time that a request takes there. In flight per
slot alone would fill the slots of a slow replica as readily as those of a quick one.

With an affinity the key's own order comes before all but the breaker: rendezvous hashing, weighted
by slots. Who has more than its share of the load passes what comes on to the next in that order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from reconciler.plan.desired import Affinity, JsonValue
from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Address
from reconciler.proxy.breaker import Standing
from reconciler.proxy.peers.load import ModelLoad

ASSUMED_SLOTS = 8
"""Of a replica that takes any number at a time."""
SLOW_START_SECONDS = 30.0
"""A fresh replica takes a growing share of the requests, from a tenth on."""
_FIRST_SHARE = 0.1
LOAD_BOUND = 1.25
"""With an affinity: how much of the mean load a replica may have, before others help it."""
_TIGHT_KV = (0.8, 0.9, 0.95)
_TIGHT_GPU_BYTES = 512 * 1024 * 1024
_LEAST_SECONDS = 0.02
"""Shorter times to first byte are alike."""
_MOST_DOUBLINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One loaded replica. `address`: None: it is on this node. `load`: as told last. `unreported`:
    requests of ours that began there since, less those that ended. `slots`: how many requests it
    works on at a time; None: any number. `first_byte_seconds`: lately, decaying; `serving_seconds`:
    for how long; None: not known, or long. `gpu_free_bytes`: of its node. `pause_seconds`: until
    its breaker lets a probe through."""

    node: NodeName
    address: Address | None
    load: ModelLoad
    unreported: int = 0
    slots: int | None = None
    gpu_free_bytes: int | None = None
    first_byte_seconds: float | None = None
    serving_seconds: float | None = None
    breaker: Standing = Standing.CLOSED
    pause_seconds: float = 0.0

    @property
    def busy(self) -> int:
        return max(0, self.load.in_flight + self.load.waiting + self.unreported)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A candidate in its place. `score`: smaller is better, compared from the left. `notes`: what
    its figures do not show by themselves."""

    candidate: Candidate
    score: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """One clause that names the figures that decide."""
        return ", ".join((*_said(self.candidate), *self.notes))


def rank(
    candidates: Sequence[Candidate],
    *,
    affinity: Affinity = Affinity.NONE,
    key: bytes | None = None,
    tie: int = 0,
) -> tuple[Scored, ...]:
    """Best first. `key`: of `affinity_key`; None: as without an affinity. `tie`: another number for
    each request, of 64 bits at most: equal replicas share by it."""
    if affinity is Affinity.NONE:
        key = None
    draw = tie.to_bytes(9, "big", signed=True) if key is None else key
    known = [_first_byte(each) for each in candidates if each.first_byte_seconds is not None]
    fastest = min(known, default=_LEAST_SECONDS)
    scored = [_scored(each, draw, fastest) for each in candidates]
    if key is not None:
        scored = _by_key(scored, key)
    return tuple(sorted(scored, key=lambda each: (each.score, _name(each.candidate))))


def admitted(ranked: Sequence[Scored]) -> tuple[Scored, ...]:
    """Those of them that a request may go to now, best first.

    Without any closed breaker one request at a time goes to the least bad replica. Nobody: such a
    one is under way. A breaker never bars the only replica: that could not help anybody.
    """
    if len(ranked) == 1:
        return tuple(ranked)
    standings = {each.candidate.breaker for each in ranked}
    if standings & _USABLE:
        return tuple(each for each in ranked if each.candidate.breaker in _USABLE)
    return () if Standing.PROBING in standings else tuple(ranked[:1])


def explain(
    ranked: Sequence[Scored],
    *,
    affinity: Affinity = Affinity.NONE,
    key: bytes | None = None,
    tie: int = 0,
) -> dict[str, JsonValue]:
    """Every figure that the order came from: with these, `rank` gives it again."""
    return {
        "affinity": affinity.value,
        "key": None if key is None else key.hex(),
        "tie": tie,
        "candidates": [_figures(each) for each in ranked],
    }


_USABLE = frozenset({Standing.CLOSED, Standing.HALF_OPEN})
_HELD_BACK = "held back because it has just come"


def _scored(candidate: Candidate, draw: bytes, fastest: float) -> Scored:
    slots, chance = _slots(candidate), _chance(draw, candidate)
    held_back = _is_held_back(candidate, draw)
    load = ((candidate.busy + 1) / slots + held_back) * _slowness(candidate, fastest)
    return Scored(
        candidate=candidate,
        score=(
            float(candidate.breaker not in _USABLE),
            candidate.pause_seconds,
            math.ceil(2 * load),
            float(_tightness(candidate)),
            load,
            float(candidate.address is not None),
            chance,
        ),
        notes=(_HELD_BACK,) if held_back else (),
    )


def _by_key(scored: Sequence[Scored], key: bytes) -> list[Scored]:
    usable = [each.candidate for each in scored if each.candidate.breaker in _USABLE]
    slots = sum(_slots(each) for each in usable) or 1
    per_slot = LOAD_BOUND * (sum(each.busy for each in usable) + 1) / slots
    return [_keyed(each, key, per_slot) for each in scored]


def _keyed(scored: Scored, key: bytes, bound: float) -> Scored:
    """`bound`: in flight per slot."""
    candidate, slots = scored.candidate, _slots(scored.candidate)
    most = max(math.ceil(bound * slots), math.ceil(slots / 2))
    full = candidate.busy + 1 > most or _tightness(candidate) > 1
    breaker, pause, *others = scored.score
    if full or _HELD_BACK in scored.notes:
        notes = (*scored.notes, f"with more than its share of {most}") if full else scored.notes
        return Scored(candidate=candidate, score=(breaker, pause, 1.0, *others), notes=notes)
    race = -math.log(1.0 - _chance(b"key" + key, candidate)) / _nominal_slots(candidate)
    notes = (f"within its share of {most}, in the key's order",)
    return Scored(candidate=candidate, score=(breaker, pause, 0.0, race), notes=notes)


def _slots(candidate: Candidate) -> int:
    """Fewer than it should have, where requests wait within its engine."""
    slots, load = _nominal_slots(candidate), candidate.load
    return min(slots, max(1, load.in_flight - load.queued)) if load.queued else slots


def _nominal_slots(candidate: Candidate) -> int:
    return candidate.slots or ASSUMED_SLOTS


def _is_held_back(candidate: Candidate, draw: bytes) -> bool:
    """As if all of its slots were taken by others: that is a place behind, and no bar."""
    if candidate.serving_seconds is None:
        return False
    share = max(_FIRST_SHARE, candidate.serving_seconds / SLOW_START_SECONDS)
    return _chance(b"fresh" + draw, candidate) >= share


def _tightness(candidate: Candidate) -> int:
    usage = candidate.load.kv_usage
    if usage is not None:
        return sum(usage >= step for step in _TIGHT_KV)
    free = candidate.gpu_free_bytes
    return int(free is not None and free < _TIGHT_GPU_BYTES)


def _slowness(candidate: Candidate, fastest: float) -> float:
    """A power of two, because smaller differences are noise."""
    times = math.floor(math.log2(_first_byte(candidate) / fastest) + 0.5)
    return 2.0 ** min(max(0, times), _MOST_DOUBLINGS)


def _first_byte(candidate: Candidate) -> float:
    """Seconds; where not known, as good as the best, so that it gets to be known."""
    return max(candidate.first_byte_seconds or 0.0, _LEAST_SECONDS)


def _chance(draw: bytes, candidate: Candidate) -> float:
    """At least 0, less than 1: the same for the same draw and replica, on every node."""
    digest = blake2b(candidate.node.encode() + b"\0" + draw, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def _name(candidate: Candidate) -> tuple[str, str]:
    return candidate.node, str(candidate.address or "")


def _said(candidate: Candidate) -> tuple[str, ...]:
    load, slots = candidate.load, candidate.slots or "any number of"
    said = (
        "" if candidate.breaker is Standing.CLOSED else f"breaker {candidate.breaker.value}",
        f"{candidate.busy} in flight or waiting for {slots} slots",
        f"{load.queued} of them queued in its engine" if load.queued else "",
        "" if load.kv_usage is None else f"KV cache {load.kv_usage:.0%} full",
        _said_of_first_byte(candidate.first_byte_seconds),
        "on this node" if candidate.address is None else f"at {candidate.address}",
    )
    return tuple(filter(None, said))


def _said_of_first_byte(seconds: float | None) -> str:
    return "" if seconds is None else f"first byte after {seconds:.3g} s"


def _figures(scored: Scored) -> dict[str, JsonValue]:
    candidate, load = scored.candidate, scored.candidate.load
    return {
        "node": candidate.node,
        "address": None if candidate.address is None else str(candidate.address),
        "in_flight": load.in_flight,
        "waiting": load.waiting,
        "queued": load.queued,
        "kv_usage": load.kv_usage,
        "unreported": candidate.unreported,
        "slots": candidate.slots,
        "gpu_free_bytes": candidate.gpu_free_bytes,
        "first_byte_seconds": candidate.first_byte_seconds,
        "serving_seconds": candidate.serving_seconds,
        "breaker": candidate.breaker.value,
        "pause_seconds": candidate.pause_seconds,
        "score": list(scored.score),
        "why": scored.why,
    }
