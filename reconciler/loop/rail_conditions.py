"""The conditions that tell of rails: what is suspended, what waits for a confirmation (PURE)."""

from collections.abc import Iterator

from reconciler.condition import ConditionType, Reason
from reconciler.loop.conditions import Fact
from reconciler.loop.intent import Understanding


def rail_facts(now: Understanding) -> Iterator[Fact]:
    suspensions = now.desired.suspensions if now.desired is not None else ()
    of_node = [each for each in suspensions if each.model is None]
    if now.desired is not None and now.desired.suspend:
        by_command = any(each.place is None for each in of_node)
        reason = Reason.COMMAND if by_command else Reason.MANIFEST
        who = "; ".join(f"suspended {each.said}" for each in of_node) or "suspended"
        yield Fact(ConditionType.SUSPENDED, True, reason, f"{who}; nothing is started or stopped")
    of_models = [each for each in suspensions if each.model is not None]
    if of_models:
        by_command = any(each.place is None for each in of_models)
        reason = Reason.COMMAND if by_command else Reason.MANIFEST
        said = "; ".join(f"{each.model} is suspended {each.said}" for each in of_models)
        yield Fact(ConditionType.MODELS_SUSPENDED, True, reason, said)
    if now.waiting is not None:
        said = now.waiting.reason
        yield Fact(ConditionType.CONFIRMATION_NEEDED, True, Reason.STOP_LIMIT, said)
