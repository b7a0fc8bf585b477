"""The node's conditions, each with the moment since which it says what it says (PURE)."""

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.loop.intent import Understanding
from reconciler.plan.gpu_roll import Roll
from reconciler.status import Engine

_GONE_FOR_GOOD = (
    "a GPU that was taken out keeps its number until gpus.json is removed from the data folder and "
    "the agent started anew"
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition that does not know yet since when it holds. `status`: None: it is not known."""

    type: ConditionType
    status: bool | None
    reason: Reason
    message: str


DRAINING = Fact(ConditionType.DRAINING, True, Reason.ENDING, "the agent ends; new work is refused")


def faulty(error: Exception) -> tuple[Fact, ...]:
    """The agent itself is at fault, and tries again."""
    message = (
        f"the agent fails with an error of its own: {error!r}; what runs is left as it is, and "
        "what is said of it here may be old"
    )
    return (
        Fact(ConditionType.READY, None, Reason.TICK_FAILED, message),
        Fact(ConditionType.RECONCILING, False, Reason.TICK_FAILED, message),
        Fact(ConditionType.STALLED, True, Reason.TICK_FAILED, message),
    )


def perhaps_ready(condition: Condition) -> Fact:
    """What was said of a model's `Ready` before the agent came to be at fault."""
    said = f"the agent fails with an error of its own; before that: {condition.message}"
    return Fact(condition.type, None, Reason.TICK_FAILED, said)


def left_alone(doubts: Iterable[str]) -> Fact:
    """Nothing waits for these; an operator may want to look."""
    return Fact(ConditionType.PROCESSES_CLEAR, False, Reason.LEFT_ALONE, "; ".join(doubts))


def too_large(message: str) -> Fact:
    """The cache is larger than its budget; nothing is evicted before something comes."""
    return Fact(ConditionType.CACHE_IN_BUDGET, False, Reason.TOO_LARGE, message)


def history_lost(problems: Iterable[str]) -> Fact:
    """Of what earlier agents have found out, or of what the next one is to know."""
    return Fact(ConditionType.HISTORY_KEPT, False, Reason.NOT_ON_DISK, "; ".join(problems))


def devices_known(roll: Roll) -> Fact | None:
    """None where there is no GPU, and nothing is to be said of that."""
    if roll.notes:
        reason = Reason.DRIVER_SILENT if roll.failed else Reason.GPU_UNUSABLE
        if any(device.is_lost for device in roll.devices):
            reason = Reason.GPU_LOST
        message = "; ".join([*roll.notes, *([_GONE_FOR_GOOD] if roll.missing else [])])
        return Fact(ConditionType.DEVICES_KNOWN, False, reason, message)
    if not roll.usable and not roll.hints:
        return None
    count = len(roll.usable)
    said = "; ".join([f"{count} GPU{'' if count == 1 else 's'}", *roll.hints])
    reason = Reason.TOLD if roll.usable else Reason.NONE_FOR_US
    return Fact(ConditionType.DEVICES_KNOWN, True, reason, said)


def engines_usable(engines: Iterable[Engine]) -> Fact | None:
    """None where everything that an operator has named can be used."""
    gone = [each for each in engines if each.problem is not None]
    if not gone:
        return None
    message = "; ".join(f"{each.name or each.id}: {each.problem}" for each in gone)
    return Fact(ConditionType.ENGINES_USABLE, False, Reason.CANNOT_BE_USED, message)


def source_facts(now: Understanding) -> Iterable[Fact]:
    """What there is to say of the source and the manifest."""
    if now.source_error is not None:
        said = f"{now.source_error}; the last good version stays in force"
        yield Fact(ConditionType.SOURCE_READY, False, Reason.UNREADABLE, said)
    elif now.location:
        said = "; ".join([f"read {now.location}", *now.notices])
        yield Fact(ConditionType.SOURCE_READY, True, Reason.READ, said)
    else:
        yield Fact(ConditionType.SOURCE_READY, None, Reason.NOT_READ_YET, "not read yet")
    if now.not_kept is not None:
        yield Fact(ConditionType.MANIFEST_KEPT, False, Reason.NOT_ON_DISK, now.not_kept)
    errors = [problem for problem in now.problems if problem.is_error]
    if errors:
        kept = f"; counted as they were: {', '.join(now.kept)}" if now.kept else ""
        said = "; ".join(str(problem) for problem in errors) + kept
        yield Fact(ConditionType.MANIFEST_VALID, False, Reason.INVALID, said)
    elif now.desired is not None and now.waiting is not None:
        said = "valid; the revision before it stays in force until this one is confirmed"
        yield Fact(ConditionType.MANIFEST_VALID, True, Reason.WAITING, said)
    elif now.desired is not None and (now.whole or now.waiting is not None):
        warnings = "; ".join(str(problem) for problem in now.problems)
        said = warnings or ("taken up whole" if now.whole else "it waits for a confirmation")
        yield Fact(ConditionType.MANIFEST_VALID, True, Reason.VALID, said)
    elif now.desired is None:
        said = "no valid manifest was read yet; nothing is started or stopped"
        yield Fact(ConditionType.MANIFEST_VALID, False, Reason.NOTHING_GOOD_YET, said)


def stamped(
    facts: Iterable[Fact],
    before: Iterable[Condition],
    *,
    now: str,
    revision: str | None = None,
) -> tuple[Condition, ...]:
    """Facts with `since`: kept from before while status and reason stay the same.

    `now`: RFC 3339, UTC. `revision`: the newest that they take account of.
    """
    known = {condition.type: condition for condition in before}
    return tuple(_stamped(fact, known.get(fact.type), now, revision) for fact in facts)


def _stamped(fact: Fact, old: Condition | None, now: str, revision: str | None) -> Condition:
    status = "Unknown" if fact.status is None else str(fact.status)
    since = now
    if old is not None and (old.status, old.reason) == (status, fact.reason):
        since = old.since
        if (old.message, old.observed_revision) == (fact.message, revision):
            return old
    return Condition(
        type=fact.type,
        status=status,
        reason=fact.reason,
        message=fact.message,
        since=since,
        observed_revision=revision,
    )
