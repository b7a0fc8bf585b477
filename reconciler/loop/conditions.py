"""The node's conditions, each with the moment since which it says what it says (PURE)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reconciler.loop.intent import Understanding
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import ModelName
from reconciler.status import Condition, Engine

_GONE_FOR_GOOD = (
    "a GPU that was taken out keeps its number until gpus.json is removed from the data folder and "
    "the agent started anew"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A condition that does not know yet since when it holds."""

    type: str
    status: bool
    reason: str
    message: str


DRAINING = Fact(
    type="Draining", status=True, reason="Ending", message="the agent ends; new work is refused"
)
SUSPENDED = Fact(
    type="Suspended",
    status=True,
    reason="Manifest",
    message="suspend: true; nothing is started or stopped",
)


def waiting(reasons: Iterable[str]) -> Fact:
    """The node as a whole waits for something."""
    return Fact(type="Reconciling", status=False, reason="Waiting", message="; ".join(reasons))


def faulty(error: Exception) -> Fact:
    """The agent itself is at fault, and tries again."""
    message = (
        f"the agent fails with an error of its own: {error!r}; what runs is left as it is, and "
        "what is said of it here may be old"
    )
    return Fact(type="Reconciling", status=False, reason="TickFailed", message=message)


def left_alone(doubts: Iterable[str]) -> Fact:
    """Nothing waits for these; an operator may want to look."""
    message = "; ".join(doubts)
    return Fact(type="ProcessesClear", status=False, reason="LeftAlone", message=message)


def too_large(message: str) -> Fact:
    """The cache is larger than its budget; nothing is evicted before something comes."""
    return Fact(type="CacheInBudget", status=False, reason="TooLarge", message=message)


def history_lost(problems: Iterable[str]) -> Fact:
    """Of what earlier agents have found out, or of what the next one is to know."""
    message = "; ".join(problems)
    return Fact(type="HistoryKept", status=False, reason="NotOnDisk", message=message)


def degraded(reasons: Mapping[ModelName, str]) -> Fact:
    """Models that run, and not as the manifest has them."""
    message = "; ".join(f"{name} {reason}" for name, reason in sorted(reasons.items()))
    return Fact(type="Degraded", status=True, reason="Reverted", message=message)


def devices_known(roll: Roll) -> Fact | None:
    """None where there is no GPU, and nothing is to be said of that."""
    if roll.notes:
        reason = "DriverSilent" if roll.failed else "GpuUnusable"
        if any(device.is_lost for device in roll.devices):
            reason = "GpuLost"
        message = "; ".join([*roll.notes, *([_GONE_FOR_GOOD] if roll.missing else [])])
        return Fact(type="DevicesKnown", status=False, reason=reason, message=message)
    if not roll.usable and not roll.hints:
        return None
    count = len(roll.usable)
    said = "; ".join([f"{count} GPU{'' if count == 1 else 's'}", *roll.hints])
    reason = "Told" if roll.usable else "NoneForUs"
    return Fact(type="DevicesKnown", status=True, reason=reason, message=said)


def engines_usable(engines: Iterable[Engine]) -> Fact | None:
    """None where everything that an operator has named can be used."""
    gone = [each for each in engines if each.problem is not None]
    if not gone:
        return None
    message = "; ".join(f"{each.name or each.id}: {each.problem}" for each in gone)
    return Fact(type="EnginesUsable", status=False, reason="CannotBeUsed", message=message)


def source_facts(now: Understanding) -> Iterable[Fact]:
    """What there is to say of the source and the manifest."""
    if now.source_error is not None:
        yield Fact(
            type="SourceReady",
            status=False,
            reason="Unreadable",
            message=f"{now.source_error}; the last good version stays in force",
        )
    elif now.location:
        message = "; ".join([f"read {now.location}", *now.notices])
        yield Fact(type="SourceReady", status=True, reason="Read", message=message)
    else:
        yield Fact(type="SourceReady", status=False, reason="NotReadYet", message="not read yet")
    if now.not_kept is not None:
        yield Fact(type="ManifestKept", status=False, reason="NotOnDisk", message=now.not_kept)
    errors = [problem for problem in now.problems if problem.is_error]
    if errors:
        kept = f"; counted as they were: {', '.join(now.kept)}" if now.kept else ""
        yield Fact(
            type="ManifestValid",
            status=False,
            reason="Invalid",
            message="; ".join(str(problem) for problem in errors) + kept,
        )
    elif now.desired is not None and now.whole:
        warnings = "; ".join(str(problem) for problem in now.problems)
        yield Fact(
            type="ManifestValid", status=True, reason="Valid", message=warnings or "taken up whole"
        )
    elif now.desired is None:
        yield Fact(
            type="ManifestValid",
            status=False,
            reason="NothingGoodYet",
            message="no valid manifest was read yet; nothing is started or stopped",
        )


def stamped(
    facts: Iterable[Fact], before: Mapping[str, Condition], *, now: str
) -> tuple[Condition, ...]:
    """Facts with `since`: kept from before while status and reason stay the same.

    `now`: RFC 3339, UTC.
    """
    conditions = []
    for fact in facts:
        condition = Condition(
            type=fact.type,
            status=str(fact.status),
            reason=fact.reason,
            message=fact.message,
            since=now,
        )
        old = before.get(fact.type)
        if old and (old.status, old.reason) == (condition.status, condition.reason):
            condition = replace(condition, since=old.since)
        conditions.append(condition)
    return tuple(conditions)
