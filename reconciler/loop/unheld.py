"""What would come if no rail held anything back, and why one does (PURE)."""

from collections.abc import Mapping
from dataclasses import replace

from reconciler.plan.actions import Plan, StopBackend
from reconciler.plan.changes import CHANGING, STARTING, Change, NodeChanges
from reconciler.plan.desired import Desired, WaitingRevision
from reconciler.plan.ids import ModelName

_AWAITED = "all of it waits for a confirmation"


def awaited(made: NodeChanges, waiting: WaitingRevision) -> NodeChanges:
    """All of it waits."""
    changes = tuple(
        replace(each, held=each.held or _AWAITED) if each.verb in CHANGING else each
        for each in made.changes
    )
    return replace(made, changes=changes, notes=(waiting.foretold, *made.notes))


def begun_told(made: NodeChanges, held: Plan, waiting: WaitingRevision | None) -> NodeChanges:
    """What starts goes on meanwhile, though a revision that waits would stop it then."""
    later = {
        each.model
        for each in held.held
        if waiting is not None and isinstance(each, StopBackend) and each.cause == waiting.reason
    }
    changes = tuple(
        replace(each, held=None) if each.model in later and each.verb in STARTING else each
        for each in made.changes
    )
    return replace(made, changes=changes)


def awaiting(now: NodeChanges, coming: NodeChanges, waiting: WaitingRevision) -> NodeChanges:
    """What a revision that waits would change, beside what the one in force does meanwhile
    (`now`)."""
    under_way = {
        each.model: each for each in now.changes if each.verb in CHANGING and each.held is None
    }

    def told(each: Change) -> Change:
        if (mine := under_way.get(each.model)) is not None:
            return mine
        return replace(each, held=each.held or _AWAITED) if each.verb in CHANGING else each

    notes = dict.fromkeys((waiting.reason, *now.notes, *coming.notes))
    changes = tuple(map(told, coming.changes))
    return replace(coming, changes=changes, order=now.order, notes=tuple(notes))


def unheld(wanted: Desired) -> Desired:
    """The same, with no rail that holds anything back."""
    return replace(wanted, suspend=False, suspensions=(), windows=(), waiting=None)


def held_reasons(made: Plan, wanted: Desired) -> Mapping[ModelName, str]:
    """Why a rail holds back each model of which it does."""
    said = {each.model: each for each in made.outlook}
    held: dict[ModelName, str] = {}
    for action in made.held:
        outlook = said.get(action.model)
        by = wanted.suspension_of(action.model)
        if wanted.suspends(action.model):
            held[action.model] = f"suspended {by.said}" if by is not None else "suspended"
        elif outlook is not None and outlook.target is not None:
            held[action.model] = outlook.target.reason
        else:
            said_of = outlook.reason if outlook is not None else action.reason
            held[action.model] = said_of.partition("; ")[2] or said_of  # not that it serves
    return held
