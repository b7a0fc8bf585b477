"""What a plan says of a model: its state, why, and what is coming beside it."""

from reconciler.errors import Bug
from reconciler.plan.actions import Draining, KeepBackend, Outlook, StopBackend, Target
from reconciler.plan.case import Case, at_ease, is_stopping
from reconciler.plan.next_action import Step
from reconciler.plan.observed import EffectKind, ObservedProcess, ProcessPhase
from reconciler.plan.phase import State


def outlook(case: Case, step: Step) -> Outlook | None:
    """The model as it is once the step's action is dispatched; None: nothing is left to show.

    A live process gives the state; what is desired instead of it is the target.
    """
    if isinstance(step.action, KeepBackend):
        case = at_ease(case)
    if case.process is not None:
        return _with_process(case, case.process, step)
    effect = case.seen.in_flight
    if effect is None and case.desired is None and not case.leftovers:
        return None
    state = step.state
    if effect is not None and effect.kind is EffectKind.STOP:
        state = State.UNLOADING
    elif effect is not None and effect.kind is EffectKind.START:
        state = State.LOADING
    return Outlook(
        model=case.name,
        state=state,
        reason=step.explained,
        left_pid=case.leftovers[0].pid if case.leftovers else None,
        retry_at=_retry_at(step),
        needs=case.seen.needs,
        download_bytes=case.seen.download_bytes,
    )


def as_found(case: Case) -> Outlook:
    """Of a process that nobody can say of yet whether it is wanted: what serves, serves (R2)."""
    process = case.process
    if process is None:
        raise Bug(f"cannot say what is found of {case.name}: nothing of it lives")
    state = State.LOADED if process.phase is ProcessPhase.LOADED else State.LOADING
    return Outlook(
        model=case.name,
        state=State.UNLOADING if process.died else state,
        reason=f"{process.doing}; no valid manifest was read yet, so it stays as it is",
        process=process.nonce,
        asked_again=process.is_asked and not process.died,
    )


def _with_process(case: Case, process: ObservedProcess, step: Step) -> Outlook:
    target = None
    why: str | None = step.explained
    if case.wanted is not None and not case.runs_as_wanted:
        target = Target(spec_hash=case.wanted.spec_hash, state=step.state, reason=step.explained)
        why = case.obsolete_because
    state, doing = _doing(case, process, step)
    if isinstance(step.action, StopBackend) and state is State.UNLOADING:
        why = step.action.reason
    elif (cause := case.stops_because(process)) is not None:
        why = cause if target is not None else _joined(cause, step.explained)
    reason = doing if why is None or why == doing else f"{doing}; {why}"
    return Outlook(
        model=case.name,
        state=state,
        reason=reason,
        process=process.nonce,
        asked_again=state is State.LOADING and process.was_loaded,
        coming=case.coming.nonce if case.coming is not None else None,
        draining=tuple(_draining(case, each) for each in case.surplus),
        target=target,
        retry_at=_retry_at(step),
        needs=case.seen.needs,
        download_bytes=case.seen.download_bytes,
    )


def _joined(cause: str, then: str) -> str:
    return cause if cause == then else f"{cause}; {then}"


def _draining(case: Case, process: ObservedProcess) -> Draining:
    effect = case.seen.in_flight
    since = effect.since if effect is not None and is_stopping(case.seen, process) else None
    return Draining(
        nonce=process.nonce,
        pid=process.pid,
        spec_hash=process.instance.spec_hash,
        reason=case.surplus_because(process),
        since=since,
        loads=process.loads,
    )


def _retry_at(step: Step) -> float | None:
    return step.retry.at if step.retry is not None else None


def _doing(case: Case, process: ObservedProcess, step: Step) -> tuple[State, str]:
    action = step.action
    stops = isinstance(action, StopBackend) and action.nonce == process.nonce
    if stops or case.stopping:
        return State.UNLOADING, f"stops (pid {process.pid})"
    if process.died:
        return State.UNLOADING, process.doing
    loaded = process.phase is ProcessPhase.LOADED
    return State.LOADED if loaded else State.LOADING, process.doing
