"""What is next for one model, as if it were alone on the node."""

from dataclasses import replace

from reconciler.plan.actions import (
    AbortFetch,
    FetchFiles,
    KeepBackend,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.case import DIED, Case, at_ease
from reconciler.plan.desired import DesiredModel, Strategy
from reconciler.plan.next_action import Retry, Step, failed, stop_failed
from reconciler.plan.observed import (
    EffectKind,
    Failure,
    InFlight,
    ObservedProcess,
    ProcessPhase,
)
from reconciler.plan.phase import State
from reconciler.plan.retry import failure_that_counts, next_attempt_at
from reconciler.plan.wording import GIVING_UP_WOULD_DO, as_written, ordinal

_GIVES_UP = "no room for the files of both, and `keep_last_good: false` gives up what serves"


TRIED = " try, after: "
"""What stands before the failure for which a start is not the first one."""


def next_step(case: Case, now: float) -> Step:
    """Decide for one model; at most one effect at a time (R6)."""
    effect = case.seen.in_flight
    if effect is None:
        return _free(case, now)
    if effect.kind is EffectKind.FETCH:
        return _while_fetching(case, effect)
    wanted = case.wanted
    if effect.kind is EffectKind.START and wanted and effect.spec_hash == wanted.spec_hash:
        return Step(state=State.LOADING, reason="its backend is being started")
    if (old := case.stranded) is not None and (kept := _kept(case, old, now)) is not None:
        return kept
    step = replace(_free(case, now), needs_room=False, retry=None, deadline=None)
    if wanted is None or step.action is None:
        return replace(step, action=None)
    if isinstance(step.action, StopLeftover):
        return replace(step, action=None)
    if step.state is State.LOADED:
        return replace(step, action=None, reason=f"{_under_way(case, effect)} is being stopped")
    waits = f"goes on once {_under_way(case, effect)} has ended"
    ending = case.ending
    if ending is None or ending is case.process or ending.instance != case.instance:
        return step.waiting(waits)
    cause = case.stops_because(ending)  # it was to be what is wanted
    return step.waiting(f"{cause}; {waits}" if cause is not None else waits)


def _kept(case: Case, old: ObservedProcess, now: float) -> Step | None:
    """The old one serves again, as if it had never been stopped (R7); None: it would end anyway."""
    step = _free(replace(at_ease(case), leftovers=()), now)
    if isinstance(step.action, StopBackend) and step.action.nonce == old.nonce:
        return None
    keep = KeepBackend(
        model=case.name,
        nonce=old.nonce,
        pid=old.pid,
        reason=f"nothing serves in place of pid {old.pid} any more; it drains still, and is kept",
    )
    return replace(step.waiting(f"goes on once pid {old.pid} serves again"), action=keep)


def _under_way(case: Case, effect: InFlight) -> str:
    if effect.kind is EffectKind.START:
        return f"the start of spec {effect.spec_hash}"
    return f"pid {case.ending.pid}" if case.ending is not None else "a stop under way"


def _while_fetching(case: Case, effect: InFlight) -> Step:
    wanted = case.wanted
    if wanted is None:
        step = _unwanted(case)
    elif effect.spec_hash != wanted.fetch_key:
        why = f"spec changed ({effect.spec_hash} → {wanted.fetch_key}) during the download"
        step = Step(state=State.PENDING, reason=why)
    elif effect.aborting:
        step = Step(state=State.PENDING, reason="goes on once a download given up has ended")
    else:
        detail = f": {effect.detail}" if effect.detail else ""
        return Step(state=State.CACHING, reason=f"fetches {wanted.spec.source}{detail}")
    if effect.aborting:
        return step
    return replace(step, action=AbortFetch(model=case.name, reason=step.reason))


def _unwanted(case: Case) -> Step:
    if case.desired is None:
        return Step(state=State.STOPPED, reason="removed from the manifest")
    return Step(state=State.DISABLED, reason="enabled: false")


def _free(case: Case, now: float) -> Step:
    """The step when nothing is under way."""
    if case.leftovers:
        return _end_leftover(case, now)
    if case.surplus:
        return _end_surplus(case, now)
    process = case.process
    if case.wanted is None:
        step = _unwanted(case)
        return step if process is None else _stop(case, process, step, step.reason, now)
    if process is None or case.stopping:
        return _towards(case, case.wanted, now)
    if process.died:
        return Step(state=State.PENDING, reason=DIED)
    if process.misplaced is not None:
        return _fail(case, process, process.misplaced, now)
    if process.hung is not None:
        return _fail(case, process, process.hung.reason, now)
    if case.seen.gives_way is not None:
        step = Step(state=State.BLOCKED, reason=case.seen.gives_way)
        return _stop(case, process, step, case.seen.gives_way, now)
    if case.coming is not None:
        return _while_coming(case, case.wanted, case.coming, now)
    if process.phase is ProcessPhase.LOADING:
        return _while_loading(case, case.wanted, process, now)
    if case.runs_as_wanted:
        return Step(state=State.LOADED, reason=process.doing)
    return _towards(case, case.wanted, now)


def _while_loading(case: Case, wanted: DesiredModel, process: ObservedProcess, now: float) -> Step:
    """Give a load its time, and no more.

    One that is obsolete goes on until its successor could start, for it may serve before the new
    files are here (R5); then it ends at once, for nobody uses it yet.
    """
    if process.failed_check is not None:
        return _fail(case, process, process.failed_check, now)
    is_wanted = process is case.coming or case.runs_as_wanted
    deadline = process.awaited_since + wanted.timeouts.ready
    if now < deadline:
        if is_wanted:
            step = Step(state=State.LOADING, reason=process.doing)
        else:
            step = _towards(case, wanted, now)
        return replace(step, deadline=deadline)
    lacks = f": {process.lacks}" if process.lacks else ""
    why = f"not ready within {as_written(wanted.timeouts.ready)}{lacks}"
    if process.was_loaded:
        why = f"it served an earlier agent, and does not serve this one: {why}"
    step = _after_bad(case, process, why)
    return _stop(case, process, step, why, now, failure=why if is_wanted else None)


def _while_coming(case: Case, wanted: DesiredModel, coming: ObservedProcess, now: float) -> Step:
    """What loads beside one that serves costs that nothing, however it ends."""
    if coming.misplaced is not None:
        return _fail(case, coming, coming.misplaced, now)
    if coming.hung is not None:
        return _fail(case, coming, coming.hung.reason, now)
    return _while_loading(case, wanted, coming, now)


def _towards(case: Case, wanted: DesiredModel, now: float) -> Step:
    """From nothing, or from another instance, to the desired one: files first (R5)."""
    failure = failure_that_counts(wanted, case.seen)
    barred = _gives_up(case, wanted, failure, now) or _barred(case, failure, now)
    if barred is not None:
        return barred
    again = f"; {ordinal(failure.count + 1)}{TRIED}{failure.reason}" if failure else ""
    if case.instance is None:
        # Whether it could ever fit is known by both.
        if (asked := case.seen.unoffered or case.seen.unknown) is not None:
            return Step(state=State.PENDING, reason=f"waits: {asked}")
        reason = f"files of {wanted.spec.source} are not in the cache{again}"
        fetch = FetchFiles(model=case.name, spec_hash=wanted.fetch_key, reason=reason)
        return Step(state=State.CACHING, reason=reason, action=fetch)
    if case.seen.hindrance is not None:
        return Step(state=State.ERROR, reason=case.seen.hindrance)
    if case.seen.unknown is not None:
        return Step(state=State.PENDING, reason=f"waits: {case.seen.unknown}")
    if case.process is None:
        what = "in the manifest and" if wanted.instead_of is None else "comes back;"
        reason = f"{what} not running{again}"
        start = StartBackend(
            model=case.name, instance=case.instance, gpus=wanted.gpus, reason=reason
        )
        return Step(state=State.LOADING, reason=reason, action=start, needs_room=True)
    why = case.obsolete_because or "started anew"
    step = replace(_after(case.process), needs_room=True)
    recreate = _stop(case, case.process, step, why, now)
    return _surge(case, wanted, case.process, f"{why}{again}", recreate) or recreate


def _surge(
    case: Case, wanted: DesiredModel, process: ObservedProcess, why: str, recreate: Step
) -> Step | None:
    """The successor first, while the old process serves. None: that cannot be.

    Devices that are named are what the old process holds, as a rule: there only who asks for a
    surge gets it. Two processes of one instance there never are.
    """
    if case.instance is None or case.instance == process.instance:
        return None
    if process.loads or recreate.action is None:  # it serves nobody; or it could not be stopped
        return None
    auto = wanted.strategy is Strategy.AUTO
    if wanted.strategy is Strategy.RECREATE or (auto and wanted.spec.gpu_ids):
        return None
    reason = f"{why}; pid {process.pid} serves until the new one is loaded"
    start = StartBackend(model=case.name, instance=case.instance, gpus=wanted.gpus, reason=reason)
    return Step(
        state=State.LOADING,
        reason=reason,
        action=start,
        needs_room=True,
        surges=True,
        instead=recreate if auto else None,
    )


def _after(process: ObservedProcess) -> Step:
    return Step(state=State.PENDING, reason=f"goes on once pid {process.pid} has ended")


def _after_bad(case: Case, process: ObservedProcess, why: str) -> Step:
    """Of one that comes beside what serves, nobody else tells why."""
    step = _after(process)
    return replace(step, reason=f"{why}; {step.reason}") if process is case.coming else step


def _gives_up(case: Case, wanted: DesiredModel, failure: Failure | None, now: float) -> Step | None:
    """R5 the other way round, where the manifest says so: what runs makes room for the new files.

    Only while the refusal is fresh: once it is due again, the download says how things are.
    """
    process = case.process
    if wanted.keep_last_good or process is None or case.seen.refusal is not None:
        return None
    if failure is None or not failure.own_files_in_the_way:
        return None
    due = next_attempt_at(failure, key=case.name)
    if due is None or now >= due:
        return None
    hindrance = case.seen.hindrance or case.seen.unknown
    if hindrance is not None:
        reason = f"{failure.reason}; what runs is not given up for it: {hindrance}"
        retry = Retry(at=due, delay_seconds=due - failure.at)
        return Step(state=State.ERROR, reason=reason, retry=retry)
    why = f"{_GIVES_UP}: {failure.reason}"
    return _stop(case, process, replace(_after(process), needs_room=True), why, now)


def _barred(case: Case, failure: Failure | None, now: float) -> Step | None:
    """Why the desired instance cannot be tried now; None: it can."""
    if case.seen.refusal is not None:
        return Step(state=State.BLOCKED, reason=case.seen.refusal)
    if failure is None:
        return None
    step = failed(case.name, failure)
    if step.retry is not None and now >= step.retry.at:
        return None
    if step.retry is not None and failure.own_files_in_the_way and case.process is not None:
        step = replace(step, reason=f"{step.reason}; {GIVING_UP_WOULD_DO}")
    return step


def _stop(
    case: Case,
    process: ObservedProcess,
    step: Step,
    reason: str,
    now: float,
    *,
    cause: str | None = None,
    failure: str | None = None,
) -> Step:
    """`step` with a stop as its action, unless the last stop failed and is not due again.

    `cause`: see `StopBackend`; None: all of the reason.
    """
    if (waits := stop_failed(case, now)) is not None:
        why, retry = waits
        why = f"{reason}; {why}"
        return replace(step, action=None, needs_room=False, reason=why, retry=retry)
    stop = StopBackend(
        model=case.name,
        nonce=process.nonce,
        pid=process.pid,
        drain=process.phase is ProcessPhase.LOADED,
        reason=reason,
        cause=cause or reason,
        failure=failure,
        ran_seconds=_ran_seconds(process, failure),
    )
    return replace(step, action=stop)


def _fail(case: Case, process: ObservedProcess, why: str, now: float) -> Step:
    """End what is found to be bad; a failure only of what is wanted."""
    failure = why if process is case.successor else None
    return _stop(case, process, _after_bad(case, process, why), why, now, failure=failure)


def _ran_seconds(process: ObservedProcess, failure: str | None) -> float | None:
    hung = process.hung
    if failure is not None and process.loaded_at is None and process.was_loaded:
        return 0.0
    if hung is None or hung.reason != failure or process.loaded_at is None:
        return None
    return hung.since - process.loaded_at


def _end_surplus(case: Case, now: float) -> Step:
    """Two live processes of one model are there only for a surge, one of each instance (R6;
    scenario 9, llama-swap#281)."""
    step = _free(replace(case, surplus=()), now)
    ends = next((each for each in case.surplus if not case.stands_by(each)), None)
    if ends is None:
        if case.process is None or not isinstance(step.action, StartBackend):
            return step
        return step.waiting(f"goes on once pid {case.process.pid} has answered")
    step = replace(step, needs_room=False)
    waits = step.waiting(f"goes on once pid {ends.pid} has ended")
    if case.wanted is not None:
        step = waits
    else:
        then = f"{step.reason}; it is stopped once pid {ends.pid} has ended"
        step = replace(step, action=None, reason=then)
    if ends.died:
        return step
    cause, why = case.surplus_cause(ends), case.surplus_because(ends)
    stop = _stop(case, ends, step, why, now, cause=cause)
    if case.wanted is None or not isinstance(stop.action, StopBackend):
        return stop
    return replace(stop, action=replace(stop.action, revocable=stop.action.drain))


def _end_leftover(case: Case, now: float) -> Step:
    """What an earlier agent left, and cannot be adopted, ends before anything starts."""
    first = case.leftovers[0]
    why = f": {first.why}" if first.why else ""
    reason = f"pid {first.pid} was left by an earlier agent{why}"
    if first.stopping:
        return Step(state=State.UNLOADING, reason=reason)
    if (waits := stop_failed(case, now)) is not None:
        failed, retry = waits
        return Step(state=State.UNLOADING, reason=f"{reason}; {failed}", retry=retry)
    stop = StopLeftover(model=case.name, nonce=first.nonce, pid=first.pid, reason=reason)
    return Step(state=State.UNLOADING, reason=reason, action=stop)
