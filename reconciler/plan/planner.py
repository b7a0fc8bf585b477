"""The plan: from desired and observed to actions with reasons, as a pure function (docs/adr/0001).

cases ─▶ a step for each model alone ─▶ room: load slots, devices ─▶ actions in order, outlook
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reconciler.plan.actions import (
    AbortFetch,
    Action,
    FetchFiles,
    KeepBackend,
    Plan,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.case import Case, cases, unclaimed
from reconciler.plan.desired import Desired
from reconciler.plan.ids import ModelName
from reconciler.plan.next_action import Step
from reconciler.plan.observed import Observed
from reconciler.plan.outlook import as_found, outlook
from reconciler.plan.rails import held_actions, notes_of, railed, told_of
from reconciler.plan.room import grant, rank
from reconciler.plan.step import next_step

_ORDER = {
    kind: number
    for number, kind in enumerate(
        (KeepBackend, StopLeftover, AbortFetch, StopBackend, FetchFiles, StartBackend)
    )
}
"""What has no time to lose first; what frees something goes before what takes it."""
_UNTIL_ENGINES_ARE_KNOWN = "held back until this node's engines are known"


def plan(desired: Desired | None, observed: Observed, now: float) -> Plan:
    """The smallest set of actions that closes the gap, at most one for each model.

    Applied again and again it comes to rest: then it is empty, and what is observed is what is
    desired, but for what a reason speaks against. `now`: seconds, on the clock of `observed`.
    """
    unread = _unread(desired, observed)
    if desired is None or unread:
        found = unclaimed(observed) if desired is None else ()
        return Plan(outlook=tuple(as_found(case) for case in found), notes=unread)
    listed = cases(desired, observed)
    steps = {
        case.name: railed(case, next_step(case, now), desired, observed.maintenance)
        for case in listed
    }
    if desired.suspend:
        pass
    elif not observed.engines_known:
        why = _UNTIL_ENGINES_ARE_KNOWN
        if observed.engines_failure is not None:
            why = f"{why}, which cannot be looked for ({observed.engines_failure})"
        steps = {name: _unknown(step, why) for name, step in steps.items()}
    else:
        steps = grant(
            listed,
            steps,
            leftovers=observed.leftovers,
            max_parallel_loads=observed.max_parallel_loads,
            rooms=observed.rooms,
        )
    seen = [
        told_of(desired, shown)
        for case in listed
        if (shown := outlook(case, steps[case.name])) is not None
    ]
    return Plan(
        actions=_in_order(listed, {name: step.action for name, step in steps.items()}),
        outlook=tuple(seen),
        next_at=_next_at(steps.values()),
        staying=frozenset(
            (case.name, case.instance)
            for case in listed
            if steps[case.name].stays and case.instance is not None
        ),
        notes=(*notes_of(desired), *_notes(observed)),
        held=_in_order(listed, held_actions(listed, steps, desired)),
    )


def _unread(desired: Desired | None, observed: Observed) -> tuple[str, ...]:
    """Nothing is done before both were read once, for nothing can be called unwanted (R3)."""
    notes = []
    if desired is None:
        notes.append("nothing is started or stopped: no valid manifest was read yet")
    if not observed.processes_read:
        notes.append("nothing is started or stopped: the processes were not read yet")
    return tuple(notes)


def _unknown(step: Step, why: str) -> Step:
    """No action, and no time at which there would be one; but to take a stop back stops nothing."""
    if step.action is None or isinstance(step.action, KeepBackend):
        return replace(step, retry=None, deadline=None)
    return step.waiting(f"{why}: {step.action.reason}")


def _in_order(
    listed: Iterable[Case], chosen: Mapping[ModelName, Action | None]
) -> tuple[Action, ...]:
    actions = [
        (_ORDER[type(action)], rank(case), action)
        for case in listed
        if (action := chosen[case.name]) is not None
    ]
    return tuple(action for _, _, action in sorted(actions, key=lambda each: each[:2]))


def _next_at(steps: Iterable[Step]) -> float | None:
    """The earliest retry or deadline. What acts, or waits for others, is woken by an event."""
    idle = [step for step in steps if step.action is None]
    times = [step.retry.at for step in idle if step.retry is not None]
    times += [step.deadline for step in idle if step.deadline is not None]
    return min(times, default=None)


def _notes(observed: Observed) -> tuple[str, ...]:
    notes = []
    if not observed.engines_known:
        failure = observed.engines_failure
        why = (
            f"this node's engines cannot be looked for, which is tried again: {failure}"
            if failure is not None
            else "this node's engines are asked what they are"
        )
        notes.append(f"nothing is started or stopped: {why}")
    if observed.leftovers:
        listed = ", ".join(
            f"pid {leftover.pid} ({leftover.model})"
            for leftover in sorted(observed.leftovers, key=lambda each: each.pid)
        )
        notes.append(f"nothing starts before what an earlier agent left has ended: {listed}")
    return tuple(notes)
