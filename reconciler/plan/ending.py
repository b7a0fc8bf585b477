"""What is said of the models while the agent ends (R10): nothing starts, and what lives stops or is
left for the next agent (R9)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from reconciler.plan.actions import Draining, Outlook, Plan
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.phase import State


class OnExit(StrEnum):
    """What becomes of backends when their agent is told to end. AUTO: they are stopped, but for
    what is suspended, of which nothing is stopped."""

    AUTO = "auto"
    STOP = "stop"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is left running of a model: its state, and its processes. `why`: as a clause; empty:
    whatever runs is left."""

    state: State
    processes: frozenset[Nonce]
    why: str = ""


_STAYS = frozenset({State.ERROR, State.BLOCKED, State.DISABLED})
NOBODY: Mapping[ModelName, Left] = MappingProxyType({})


def ending(
    made: Plan,
    alive: Collection[ModelName],
    left: Mapping[ModelName, Left] = NOBODY,
    *,
    starting: Collection[ModelName] = (),
) -> Plan:
    """The plan without its actions. `alive`: models that still have a process; `left`: those of
    them that are left running; `starting`: whose start has begun, and comes to
    its end."""
    outlook = []
    for shown in made.outlook:
        if shown.model in left:
            outlook.append(_left(shown, left[shown.model]))
            continue
        if shown.model in alive:
            state, reason = State.UNLOADING, "the agent ends"
        elif shown.model in starting:
            state, reason = State.LOADING, "the agent ends; its start has to come to its end first"
        elif shown.state in _STAYS:
            state, reason = shown.state, shown.reason
        else:
            state, reason = State.STOPPED, "the agent ends"
        outlook.append(replace(shown, state=state, reason=reason, target=None, retry_at=None))
    return Plan(outlook=tuple(outlook))


def _left(shown: Outlook, left: Left) -> Outlook:
    """With the one that loads to take its place, and the one that has made way, where they live."""
    target = shown.target if shown.coming in left.processes else None
    if target is not None:
        why = "the agent ends and leaves it loading; the next agent goes on with the change"
        target = replace(target, state=State.LOADING, reason=why)
    return replace(
        shown,
        state=left.state,
        reason=f"the agent ends and leaves it running{left.why}",
        draining=tuple(_made_way(each, left) for each in shown.draining),
        target=target,
        retry_at=None,
    )


def _made_way(each: Draining, left: Left) -> Draining:
    if each.nonce not in left.processes:
        return each
    return replace(each, reason=f"{each.reason}; the agent ends and leaves it to the next one")
