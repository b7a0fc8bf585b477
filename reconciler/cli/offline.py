"""What a manifest would change on a node of which nothing is known (PURE)."""

from dataclasses import replace

from reconciler.loop.comparison import compared
from reconciler.plan.changes import NodeChanges
from reconciler.plan.desired import Desired
from reconciler.plan.observed import Observed
from reconciler.plan.rehearsal import planner_alone, rehearse

_NOW = 0.0


def from_nothing(desired: Desired) -> NodeChanges:
    """Where nothing runs, and nothing is cached."""
    there = Observed(processes_read=True, max_parallel_loads=len(desired.models) + 1)
    made = compared(desired, rehearse(there, planner_alone(desired, _NOW), _NOW))
    return replace(made, notes=(*made.notes, *_unknown_engines(desired)))


def _unknown_engines(desired: Desired) -> tuple[str, ...]:
    named = sorted({model.spec.engine for model in desired.models if model.spec.engine is not None})
    if not named:
        return ()
    return (f"whether it has the engines {', '.join(named)}, only its agent knows",)
