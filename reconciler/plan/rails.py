"""What keeps the planner from doing at once what would cost a service: who is suspended, how many
models one revision may stop, and when what serves may be stopped.

    a newer revision ─▶ excess? ─▶ it waits for a confirmation; the one before stays in force
    a step ─▶ railed: suspended? disruptive, and no window open? ─▶ held, with who holds it

A rail only ever holds back: with none of them the steps are as they were.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from reconciler.plan.actions import Action, KeepBackend, Outlook, Plan, StopBackend
from reconciler.plan.case import Case, is_stopping
from reconciler.plan.desired import Desired, WaitingRevision
from reconciler.plan.ids import ModelName
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.next_action import Step
from reconciler.plan.observed import Observed, ObservedProcess
from reconciler.plan.stop_limit import DEFAULT_STOP_LIMIT, StopLimit


def running_models(observed: Observed) -> frozenset[ModelName]:
    """Those with a process that lives and is not being stopped, adopted ones too."""
    return frozenset(
        name
        for name, seen in observed.models.items()
        if any(not each.died and not is_stopping(seen, each) for each in seen.processes)
    )


def excess(
    desired: Desired,
    running: Collection[ModelName],
    limit: StopLimit = DEFAULT_STOP_LIMIT,
    before: Desired | None = None,
) -> WaitingRevision | None:
    """Why this manifest must be confirmed on a node where these models run; None: it need not.

    A stop is a model that runs and is removed, disabled, or not for this node any more; a restart
    is none, and what the manifest `before` does not want either is on its way out already. `limit`:
    the node's own, where a manifest writes none. No manifest makes room for itself: where its limit
    is looser than that of the one before, that one's counts.
    """
    if before is not None:
        running = set(running) & _wanted(before)
    stops = tuple(sorted(set(running) - _wanted(desired)))
    counts = limit_of(desired, len(running), limit, before)
    if counts.allows(len(stops), of=len(running)):
        return None
    return WaitingRevision(
        revision=desired.revision, stops=stops, running=len(running), limit=counts
    )


def _wanted(desired: Desired) -> set[ModelName]:
    return {model.name for model in desired.models if model.enabled}


def limit_of(
    desired: Desired, running: int, limit: StopLimit, before: Desired | None = None
) -> StopLimit:
    """The one that counts, of those that `excess` speaks of."""
    limits = desired.stop_limits or (limit,)
    if before is not None:
        limits = (*limits, *(before.stop_limits or (limit,)))
    return min(limits, key=lambda each: each.at_most(running))


def confirmed_by_name(
    desired: Desired, stops: WaitingRevision, waiting: Iterable[WaitingRevision]
) -> bool:
    """Whether the manifest names one that waits (`confirm_stop`) and stops no other models."""
    return any(
        each.revision.startswith(name) and set(stops.stops) <= set(each.stops)
        for each in waiting
        for name in desired.confirms
    )


def railed(case: Case, step: Step, desired: Desired, maintenance: Maintenance | None) -> Step:
    """The same step, unless this model is suspended, its stop waits for a confirmation, or what
    serves would be stopped while no maintenance window is open (`maintenance` None: there are
    none). A surge that has come so far that the new process serves is ended all the same: nobody
    loses anything by the end of the old one."""
    if desired.suspends(case.name) and not _ends_surge(case, step.action):
        return held_back(step, "held back")
    waiting = desired.waiting
    if waiting is not None and case.wanted is None and case.name in waiting.stops:
        return held_back(step, "waits for confirmation")
    if maintenance is None or maintenance.is_open:
        return step
    why = f"waits for the maintenance window that opens {maintenance.opens}"
    if step.instead is not None and _disrupts(case, step.instead.action):
        step = replace(step, instead=_until(step.instead, why, maintenance))
    return _until(step, why, maintenance) if _disrupts(case, step.action) else step


def held_back(step: Step, why: str) -> Step:
    """Observe and report: no action, and no time at which there would be one. To take a stop back
    stops nothing, and it is too late for that later."""
    if step.action is None or isinstance(step.action, KeepBackend):
        return replace(step, retry=None, deadline=None)
    return replace(step.waiting(f"{why}: {step.action.reason}"), held=step.action)


def waiting_for_window(made: Plan, desired: Desired | None) -> tuple[ModelName, ...]:
    """The models whose next step only a maintenance window holds back."""
    if desired is None:
        return ()
    stops = desired.waiting.stops if desired.waiting is not None else ()
    held = {each.model for each in made.held}
    return tuple(sorted(each for each in held if each not in stops and not desired.suspends(each)))


def held_actions(
    listed: Iterable[Case], steps: Mapping[ModelName, Step], desired: Desired
) -> Mapping[ModelName, Action | None]:
    """What is held back of each model: of its step, or the stop that a waiting revision is for."""
    return {case.name: steps[case.name].held or _awaited_stop(case, desired) for case in listed}


def _awaited_stop(case: Case, desired: Desired) -> StopBackend | None:
    waiting, process = desired.waiting, case.process
    if waiting is None or case.name not in waiting.stops or process is None or case.stopping:
        return None
    return StopBackend(
        model=case.name,
        nonce=process.nonce,
        pid=process.pid,
        drain=not process.loads,
        reason=waiting.reason,
        cause=waiting.reason,
    )


def told_of(desired: Desired, shown: Outlook) -> Outlook:
    """With who holds this model back."""
    if desired.suspends(shown.model):
        by = desired.suspension_of(shown.model)
        who = f" {by.who}" if by is not None else ""
        target = shown.target
        if target is not None and by is not None:
            target = replace(target, reason=f"suspended{who}: {target.reason}")
        shown = replace(shown, reason=f"suspended{who}: {shown.reason}", target=target)
    waiting = desired.waiting
    if waiting is not None and shown.model in waiting.stops:
        why = f"revision {waiting.short}, which waits for confirmation, would stop it"
        shown = replace(shown, reason=f"{shown.reason}; {why}")
    elif waiting is not None and shown.model in waiting.changes:
        why = f"revision {waiting.short}, which waits for confirmation, would change it"
        shown = replace(shown, reason=f"{shown.reason}; {why}")
    return shown


def notes_of(desired: Desired) -> Iterator[str]:
    """What holds up the node as a whole."""
    if desired.suspend:
        by = next((each for each in desired.suspensions if each.model is None), None)
        who = f" {by.who}" if by is not None else ""
        yield f"suspended{who}: nothing is started or stopped, nor restarted after a crash"
    if desired.waiting is not None:
        yield desired.waiting.reason


def _until(step: Step, why: str, maintenance: Maintenance) -> Step:
    return replace(held_back(step, why), deadline=maintenance.changes_at)


def _ends_surge(case: Case, action: Action | None) -> bool:
    """Whether it stops what a process of what is wanted has taken the place of, and serves."""
    if not isinstance(action, StopBackend) or action.failure is not None:
        return False
    new, old = case.process, [each for each in case.surplus if each.nonce == action.nonce]
    return (
        new is not None
        and case.runs_as_wanted
        and not new.is_asked
        and _serves(case, new)
        and any(not each.loads and each.instance != new.instance for each in old)
    )


def _disrupts(case: Case, action: Action | None) -> bool:
    """Whether clients lose what serves them: not by the end of what hangs or loads, nor of what
    another process of the model serves beside."""
    if not isinstance(action, StopBackend) or action.failure is not None:
        return False
    serving = [each for each in case.processes if _serves(case, each)]
    return [each.nonce for each in serving] == [action.nonce]


def _serves(case: Case, process: ObservedProcess) -> bool:
    """Or did so under an agent before this one, which is asked for just now."""
    return (
        not process.loads
        and process.is_sound
        and process.misplaced is None
        and not is_stopping(case.seen, process)
    )
