"""A status as it is answered: with the moment that it speaks of, and nothing in it that passes for
new once the loop has fallen silent (PURE)."""

from dataclasses import replace
from typing import Protocol

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.plan.wording import span
from reconciler.pulse import Beat
from reconciler.status import Json, ModelStatus, Status


class Beats(Protocol):
    """See `Pulse`."""

    def beat(self) -> Beat: ...


def honest(status: Status, beat: Beat) -> Status:
    """`Ready` is not known of a node, nor of its models, whose loop is silent."""
    if beat.silent_since is None:
        return status
    said = told(beat)
    models = tuple(doubted(model, beat) for model in status.models)
    conditions = _unknown(status.conditions, beat.silent_since, said)
    return replace(status, models=models, conditions=conditions)


def doubted(model: ModelStatus, beat: Beat) -> ModelStatus:
    """The same of one model."""
    if beat.silent_since is None:
        return model
    return replace(model, conditions=_unknown(model.conditions, beat.silent_since, told(beat)))


def told(beat: Beat) -> str:
    """Why, as a sentence."""
    since = f"since {beat.as_of}" if beat.as_of is not None else "since the agent's start"
    why = f"the loop has ended no tick {since} ({span(beat.age_seconds)})"
    if beat.tick_seconds is not None:
        why += f", and one is under way for {span(beat.tick_seconds)}"
    return f"{why}; what is said here is as of then"


def moment(beat: Beat) -> Json:
    """`as_of` and what belongs to it, of a server and of lists of models."""
    return {
        "now": beat.now,
        "as_of": beat.as_of,
        "loop": {
            "age_seconds": beat.age_seconds,
            "tick_seconds": beat.tick_seconds,
            "failed": beat.failed,
            "silent": beat.silent_since is not None,
        },
    }


def _unknown(conditions: tuple[Condition, ...], since: str, said: str) -> tuple[Condition, ...]:
    return tuple(
        replace(each, status="Unknown", reason=Reason.LOOP_SILENT, message=said, since=since)
        if each.type is ConditionType.READY
        else each
        for each in conditions
    )
