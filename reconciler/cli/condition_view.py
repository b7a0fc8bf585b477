"""Conditions as they are shown to people: in a few words what is not fine, or all of them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.text import Text

from reconciler.cli.client import Json
from reconciler.condition import ABNORMAL_IF_TRUE, ConditionType, Reason
from reconciler.plan.wording import span

SUMMARY = (
    ConditionType.READY,
    ConditionType.RECONCILING,
    ConditionType.STALLED,
    ConditionType.DEGRADED,
)
_OF_THE_NODE = frozenset({Reason.TICK_FAILED, Reason.LOOP_SILENT})
"""What neither a model's line tells, nor another condition."""


def is_bad(condition: Json) -> bool:
    """Whether somebody may want to look. What is not known yet after a start is no fault."""
    if condition.get("status") == "Unknown":
        return condition.get("reason") != Reason.NOT_READ_YET
    wrong = "True" if condition.get("type") in ABNORMAL_IF_TRUE else "False"
    return condition.get("status") == wrong


def is_told_elsewhere(condition: Json) -> bool:
    """By the lines of the models, or by `SourceReady` and `ManifestValid`."""
    return condition.get("type") in SUMMARY and condition.get("reason") not in _OF_THE_NODE


def short(node: object, conditions: Sequence[Json]) -> Iterator[Text]:
    """What is not fine: the four that sum up in one line, the others each with its message."""
    summed = [each for each in conditions if each.get("type") in SUMMARY and is_bad(each)]
    if summed:
        said = ", ".join(f"{each['type']} {each['status']} ({each['reason']})" for each in summed)
        own = {each["message"] for each in summed if not is_told_elsewhere(each)}
        said = ": ".join([f"{said} {_age(summed[0])}", *sorted(own)])
        moves = {each["type"] for each in summed} <= {SUMMARY[0], SUMMARY[1]}
        yield Text(f"\n{node}: {said}", style="yellow" if moves else "red")
    for condition in conditions:
        if condition.get("type") not in SUMMARY and is_bad(condition):
            yield Text(f"\n{node}: {_whole(condition)}", style="red")


def every(subject: object, conditions: Sequence[Json]) -> Iterator[Text]:
    """All of them, under a heading; what was said already is not said again."""
    if conditions:
        yield Text(f"\nconditions of {subject}:", style="bold")
    said: set[str] = set()
    for condition in conditions:
        line = _head(condition) if condition["message"] in said else _whole(condition)
        said.add(condition["message"])
        yield Text(f"  {line}", style="red" if is_bad(condition) else "dim")


def _whole(condition: Json) -> str:
    return f"{_head(condition)}: {condition['message']}"


def _head(condition: Json) -> str:
    return f"{condition['type']} is {condition['status']} ({condition['reason']}) {_age(condition)}"


def _age(condition: Json) -> str:
    """Since when, and for how long by the clock of whoever reads it."""
    since = str(condition.get("since"))
    try:
        age = (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):
        return f"since {since}"
    return f"since {since} ({span(max(age, 0.0))})"
