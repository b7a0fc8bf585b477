"""Who can start on no GPU that it might get, so that it keeps none from others."""

from collections.abc import Mapping

from reconciler.plan.desired import DesiredModel
from reconciler.plan.memory import Need, Pool
from reconciler.plan.observed import ObservedModel
from reconciler.plan.retry import failure_that_counts


def is_barred(wanted: DesiredModel, seen: ObservedModel, totals: Mapping[Pool, int]) -> bool:
    """Refused as it stands, blocked by its failures, not to be fetched, or too large for a memory.

    A crash of what was loaded, which is tried again, bars nobody. `totals`: all that each memory
    has, in bytes; one that is not there bars nobody.
    """
    if seen.refusal is not None:
        return True
    failure = failure_that_counts(wanted, seen)
    if failure is not None and (failure.permanent or failure.during == "fetch"):
        return True
    return not wanted.spec.skip_memory_check and any(
        never_fits(need, totals[pool]) for pool, need in seen.needs.items() if pool in totals
    )


def never_fits(need: Need, total_bytes: int) -> bool:
    return need.overflows or need.total_bytes > total_bytes
