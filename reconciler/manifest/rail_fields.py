"""What keeps nodes from doing at once what would cost a service, as it is written: `rails` of the
plan acts on it."""

from datetime import time
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
)

from reconciler.manifest.fields import Checked, Limit
from reconciler.manifest.problem import shown
from reconciler.manifest.zone_names import ZONES
from reconciler.plan.maintenance import DAYS, MAX_SECONDS, Window
from reconciler.plan.stop_limit import stop_limit_of

MAX_WINDOWS = 100
_START = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_REVISION = r"[0-9A-Za-z][0-9A-Za-z:._-]{6,127}"


def _stop_limit(value: object) -> str:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if stop_limit_of(text) is None:
        raise ValueError(
            f"must be a share such as 50%, a number such as 3, or none, not {shown(value)}"
        )
    return text


def _start_complaint(text: str) -> str | None:
    if len(text) == 5 and text[2] == ":" and (text[:2] + text[3:]).isdecimal():
        hour, minute = int(text[:2]), int(text[3:])
        if hour < 24 and minute < 60:
            return None
    return f"must be a time of the day such as 02:30, not {shown(text)}"


def _zone_complaint(name: str) -> str | None:
    if name in ZONES:
        return None
    near = get_close_matches(name, ZONES, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"must be a time zone such as Europe/Berlin, not {shown(name)}{hint}"


def _revision_complaint(text: str) -> str | None:
    if 7 <= len(text) <= 128 and text[0].isalnum() and set(text) <= _OF_REVISIONS:
        return None
    return (
        "must be a revision as `xgen-model status` shows it, or its first seven characters or "
        f"more, not {shown(text)}"
    )


def _week_at_most(seconds: float) -> float:
    if seconds > MAX_SECONDS:
        raise ValueError("must be at most a week (7d)")
    return seconds


_OF_REVISIONS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:._-")
_STOP_LIMIT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 999999},
        {"type": "string", "pattern": "^((100|[1-9]?[0-9])%|0|[1-9][0-9]{0,5}|none)$"},
    ],
    "examples": ["50%", 3, "none"],
}
StopLimitText = Annotated[str, BeforeValidator(_stop_limit), WithJsonSchema(_STOP_LIMIT_SCHEMA)]
RevisionText = Annotated[str, Checked(_revision_complaint, _REVISION)]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MaintenanceWindow(_Strict):
    """When what serves may be stopped or restarted."""

    days: Annotated[tuple[Day, ...], Field(min_length=1)] = Field(
        default=("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
        description="The days on which it opens. Left out: every day.",
    )
    start: Annotated[str, Checked(_start_complaint, _START)] = Field(
        description="The time of the day at which it opens, by the clock of `timezone`.",
        examples=["02:30"],
    )
    duration: Annotated[Limit, AfterValidator(_week_at_most)] = Field(
        description="For how long it stays open; also past midnight."
    )
    timezone: Annotated[str, Checked(_zone_complaint, r"[A-Za-z][A-Za-z0-9_+/-]*")] = Field(
        default="UTC", description="The clock that counts, by its name: Europe/Berlin."
    )


Windows = Annotated[tuple[MaintenanceWindow, ...], Field(max_length=MAX_WINDOWS)]


class NodeSettings(_Strict):
    """Settings of one node."""

    suspend: StrictBool = Field(
        default=False,
        description="This node observes and reports; it starts, stops and restarts nothing.",
    )
    drain: StrictBool = Field(
        default=False, description="This node gives its models away; not with `suspend`."
    )
    labels: dict[str, str] = Field(
        default_factory=dict, description="Labels for `node_selector`, besides the node's own."
    )
    maintenance_windows: Windows | None = Field(
        default=None,
        description="Of this node, instead of those of `spec`; an empty list: at any time.",
    )


def windows_of(written: tuple[MaintenanceWindow, ...]) -> tuple[Window, ...]:
    """As the planner has them."""
    return tuple(
        Window(
            days=frozenset(DAYS.index(day) for day in each.days),
            start=time.fromisoformat(each.start),
            seconds=each.duration,
            timezone=each.timezone,
        )
        for each in written
    )
