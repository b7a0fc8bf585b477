"""The conditions that tell of rails: what is suspended, what waits for a confirmation (PURE)."""

from collections.abc import Iterator, Sequence

from reconciler.condition import ConditionType, Reason
from reconciler.loop.conditions import Fact
from reconciler.loop.intent import Understanding
from reconciler.plan.phase import State
from reconciler.status import ModelStatus

_NAMED = 5
"""Models in one message; all of them have conditions of their own."""


def rail_facts(now: Understanding, models: Sequence[ModelStatus] = ()) -> Iterator[Fact]:
    suspensions = now.desired.suspensions if now.desired is not None else ()
    of_node = [each for each in suspensions if each.model is None]
    if now.desired is not None and now.desired.suspend:
        by_command = any(each.place is None for each in of_node)
        reason = Reason.COMMAND if by_command else Reason.MANIFEST
        who = "; ".join(f"suspended {each.said}" for each in of_node) or "suspended"
        said = f"{who}; nothing is started or stopped{_idle(models)}"
        yield Fact(ConditionType.SUSPENDED, True, reason, said)
    of_models = [each for each in suspensions if each.model is not None]
    if of_models:
        by_command = any(each.place is None for each in of_models)
        reason = Reason.COMMAND if by_command else Reason.MANIFEST
        said = "; ".join(f"{each.model} is suspended {each.said}" for each in of_models)
        yield Fact(ConditionType.MODELS_SUSPENDED, True, reason, said)
    if now.waiting is not None:
        said = now.waiting.reason
        yield Fact(ConditionType.CONFIRMATION_NEEDED, True, Reason.STOP_LIMIT, said)


def _idle(models: Sequence[ModelStatus]) -> str:
    """Of which models nothing serves, as a clause: `/readyz` waits for none of them."""
    idle = [each.name for each in models if each.detail.enabled and each.state is not State.LOADED]
    more = f" and {len(idle) - _NAMED} more" if len(idle) > _NAMED else ""
    return f"; meanwhile these serve nothing: {', '.join(idle[:_NAMED])}{more}" if idle else ""
