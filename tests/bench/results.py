"""All that is measured in one run."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum, auto

from tests.bench import (
    balance,
    bodies,
    cluster,
    ending,
    idle,
    latency,
    leaving,
    reconcile,
    small,
    takeover,
    validating,
)
from tests.bench.balance import BalanceResult
from tests.bench.bodies import BodiesResult
from tests.bench.cluster import ClusterResult
from tests.bench.ending import EndingResult
from tests.bench.idle import IdleResult
from tests.bench.latency import LatencyResult
from tests.bench.leaving import LeavingResult
from tests.bench.peers import Field, field_of_peers
from tests.bench.reconcile import LoopResult
from tests.bench.small import SmallResult
from tests.bench.takeover import TakeoverResult
from tests.bench.validating import ValidateResult


class Part(StrEnum):
    SMALL = auto()
    IDLE = auto()
    BODIES = auto()
    LEAVING = auto()
    ENDING = auto()
    RECONCILE = auto()
    TAKEOVER = auto()
    VALIDATE = auto()
    LATENCY = auto()
    BALANCE = auto()
    CLUSTER = auto()


ALONE = (Part.RECONCILE, Part.TAKEOVER, Part.VALIDATE, Part.LATENCY, Part.BALANCE, Part.CLUSTER)
"""They start what they measure themselves."""


@dataclass(slots=True, kw_only=True)
class Results:
    """None: it was not asked for. `absent`: peers that were not measured, and why."""

    absent: dict[str, str] = field(default_factory=dict)
    small: SmallResult | None = None
    idle: IdleResult | None = None
    bodies: BodiesResult | None = None
    leaving: LeavingResult | None = None
    ending: EndingResult | None = None
    reconcile: LoopResult | None = None
    takeover: TakeoverResult | None = None
    validate: ValidateResult | None = None
    latency: LatencyResult | None = None
    balance: BalanceResult | None = None
    cluster: ClusterResult | None = None


def measured(parts: Collection[Part], *, quick: bool) -> Results:
    """For every part the servers are fresh, for what one leaves behind is in the next one's
    figures; in a quick run they are the same."""
    results = Results()
    through = [part for part in parts if part not in ALONE]
    for group in [through] if quick and through else [[part] for part in through]:
        with field_of_peers() as who:
            results.absent |= who.absent
            for part in group:
                _measure(results, part, who, quick=quick)
    if Part.RECONCILE in parts:
        results.reconcile = reconcile.measure(reconcile.QUICK if quick else reconcile.FULL)
    if Part.TAKEOVER in parts:
        results.takeover = takeover.measure(takeover.QUICK if quick else takeover.FULL)
    if Part.VALIDATE in parts:
        results.validate = validating.measure(validating.QUICK if quick else validating.FULL)
    if Part.LATENCY in parts:
        results.latency = latency.measure(latency.QUICK if quick else latency.FULL)
    if Part.BALANCE in parts:
        results.balance = balance.measure(quick=quick)
    if Part.CLUSTER in parts:
        results.cluster = cluster.measure(cluster.QUICK if quick else cluster.FULL)
    return results


def _measure(results: Results, part: Part, who: Field, *, quick: bool) -> None:
    match part:
        case Part.SMALL:
            results.small = small.measure(who, small.QUICK if quick else small.FULL)
        case Part.IDLE:
            results.idle = idle.measure(who, idle.QUICK if quick else idle.FULL)
        case Part.BODIES:
            results.bodies = bodies.measure(who, bodies.QUICK if quick else bodies.FULL)
        case Part.LEAVING:
            results.leaving = leaving.measure(who, leaving.QUICK if quick else leaving.FULL)
        case Part.ENDING:
            results.ending = ending.measure(who)
        case (
            Part.RECONCILE
            | Part.TAKEOVER
            | Part.VALIDATE
            | Part.LATENCY
            | Part.BALANCE
            | Part.CLUSTER
        ):
            pass  # they want none of these servers
