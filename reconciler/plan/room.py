"""Grants what needs a load slot and devices, in order, and tells the others what they wait for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from reconciler.plan.actions import FetchFiles, StopBackend
from reconciler.plan.case import Case
from reconciler.plan.devices import (
    Holders,
    conflict,
    holders,
    making_way,
    obstacle,
    own_obstacle,
    owners,
)
from reconciler.plan.fitting import Ledger
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import Pool, Room
from reconciler.plan.next_action import Step
from reconciler.plan.observed import EffectKind, Leftover
from reconciler.plan.phase import State
from reconciler.plan.wording import pids

_KEEPS = "strategy: surge keeps what serves until there is room for both; recreate would stop it"
_STAYS = "it is to have the GPUs that it has now, and stops first"


def rank(case: Case) -> tuple[int, bool, str]:
    """The order of grants: priority, then what serves nothing yet, then the name."""
    priority = case.wanted.priority if case.wanted is not None else 0
    return (-priority, case.process is not None, case.name)


def _turn(case: Case) -> tuple[bool, int, bool, str]:
    """First what was stopped for its successor: nobody else takes its slot, or its memory."""
    return (case.process is not None or not case.seen.resuming, *rank(case))


def grant(
    cases: Sequence[Case],
    steps: dict[ModelName, Step],
    *,
    leftovers: Sequence[Leftover],
    max_parallel_loads: int,
    rooms: Mapping[Pool, Room] = MappingProxyType({}),
) -> dict[ModelName, Step]:
    """The same steps, of which those that find no room wait.

    A backend is stopped for its successor only when that could start: so a change to many models
    rolls over them, and a model whose devices do not come free keeps serving.
    """
    ledger = Ledger(rooms, cases, steps)
    held = holders(cases, steps)
    granted = {**steps, **_hopeless(cases, steps, ledger), **_in_their_own_way(cases, steps, held)}
    asking = sorted((case for case in cases if granted[case.name].needs_room), key=_turn)
    if not asking:
        return granted
    totals = {pool: room.total_bytes for pool, room in rooms.items()}
    owned = owners(cases, held, totals)
    conflicts = {case.name: conflict(case, owned, held) for case in asking}
    stopping = {name for name, step in granted.items() if isinstance(step.action, StopBackend)}
    going = making_way(
        (case for case in asking if case.name in stopping and not conflicts[case.name]), held
    )
    loads = {case.name for case in cases if _loads(case)}
    for case in asking:
        step = granted[case.name]
        wait = (
            _after(leftovers)
            or obstacle(case, held, going if case.name in stopping else None, beside=step.surges)
            or _without_slot(loads - {case.name}, max_parallel_loads)
        )
        if never := ledger.never(case):
            step = _refused(step, never)
        elif clash := conflicts[case.name]:
            step = replace(step.waiting(clash), state=State.BLOCKED)
        elif wait:
            step = step.waiting(f"waits: {wait}")
        else:
            step = _within_memory(case, step, ledger)
        if step.action is not None:
            loads.add(case.name)
            ledger.enter(case, beside=step.surges)
        granted[case.name] = step
    return granted


def _in_their_own_way(
    cases: Iterable[Case], steps: Mapping[ModelName, Step], held: Holders
) -> Mapping[ModelName, Step]:
    """Those that cannot surge, as their own processes hold the devices that they are to have."""
    found = {}
    for case in cases:
        step = steps[case.name]
        if step.surges and (holder := own_obstacle(case, held)) is not None:
            found[case.name] = step.instead or step.waiting(f"waits: {holder}; {_KEEPS}")
    return found


def _within_memory(case: Case, step: Step, ledger: Ledger) -> Step:
    """The step, or what is done instead without memory for it."""
    if step.action is None:  # a rail holds it back
        return step
    lack = ledger.lack(case, beside=step.surges)
    if lack is None:
        return step
    if lack.passes:
        return step.waiting(f"waits: {lack.reason}")
    if not step.surges:
        return _refused(step, lack.reason)
    if step.instead is None:
        return step.waiting(f"waits: {lack.reason}; {_KEEPS}")
    if case.wanted is not None and case.wanted.gpus_to_spare:
        return replace(step.waiting(f"waits: {lack.reason}; {_STAYS}"), stays=True)
    return _within_memory(case, step.instead, ledger)


def _hopeless(
    cases: Iterable[Case], steps: Mapping[ModelName, Step], ledger: Ledger
) -> Mapping[ModelName, Step]:
    """What this node can never hold is not fetched."""
    return {
        case.name: replace(step.waiting(f"not fetched: {why}"), state=State.BLOCKED)
        for case in cases
        if isinstance((step := steps[case.name]).action, FetchFiles)
        and (why := ledger.never(case)) is not None
    }


def _loads(case: Case) -> bool:
    """Whether a load slot is taken: by a load, a start, or a stop that makes way for one."""
    effect = case.seen.in_flight
    if effect is not None and effect.kind is EffectKind.START:
        return True
    if any(each.loads for each in case.processes):
        return True
    return case.stopping and case.wanted is not None


def _refused(step: Step, why: str) -> Step:
    return replace(step.waiting(f"cannot start: {why}"), state=State.BLOCKED)


def _after(leftovers: Iterable[Leftover]) -> str | None:
    numbers = sorted(leftover.pid for leftover in leftovers)
    return f"{pids(numbers)} of an earlier agent must end first" if numbers else None


def _without_slot(others: set[ModelName], slots: int) -> str | None:
    if len(others) < slots:
        return None
    return f"{len(others)} of {slots} loads under way ({', '.join(sorted(others))})"
