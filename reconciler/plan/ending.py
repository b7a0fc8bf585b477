"""What is said of the models while the agent ends (R10): nothing starts, and what lives stops or is
left for the next agent (R9)."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from reconciler.plan.actions import Plan
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State


class OnExit(StrEnum):
    """What becomes of backends when their agent is told to end."""

    STOP = "stop"
    LEAVE = "leave"


_STAYS = frozenset({State.ERROR, State.BLOCKED, State.DISABLED})
NOBODY: Mapping[ModelName, State] = MappingProxyType({})


def ending(
    made: Plan,
    alive: Collection[ModelName],
    left: Mapping[ModelName, State] = NOBODY,
    *,
    starting: Collection[ModelName] = (),
) -> Plan:
    """The plan without its actions. `alive`: models that still have a process; `left`: those of
    them that are left running, each with its state; `starting`: whose start has begun, and comes to
    its end."""
    outlook = []
    for shown in made.outlook:
        if shown.model in left:
            state, reason = left[shown.model], "the agent ends and leaves it running"
        elif shown.model in alive:
            state, reason = State.UNLOADING, "the agent ends"
        elif shown.model in starting:
            state, reason = State.LOADING, "the agent ends; its start has to come to its end first"
        elif shown.state in _STAYS:
            state, reason = shown.state, shown.reason
        else:
            state, reason = State.STOPPED, "the agent ends"
        outlook.append(replace(shown, state=state, reason=reason, target=None, retry_at=None))
    return Plan(outlook=tuple(outlook))
