"""What is said of the models while the agent ends (R10): what lives stops, nothing starts."""

from collections.abc import Collection
from dataclasses import replace

from reconciler.plan.actions import Plan
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State

_STAYS = frozenset({State.ERROR, State.BLOCKED, State.DISABLED})


def ending(made: Plan, alive: Collection[ModelName]) -> Plan:
    """The plan without its actions. `alive`: models that still have a process."""
    outlook = []
    for shown in made.outlook:
        if shown.model in alive:
            state, reason = State.UNLOADING, "the agent ends"
        elif shown.state in _STAYS:
            state, reason = shown.state, shown.reason
        else:
            state, reason = State.STOPPED, "the agent ends"
        outlook.append(replace(shown, state=state, reason=reason, target=None, retry_at=None))
    return Plan(outlook=tuple(outlook))
