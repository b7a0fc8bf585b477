"""Grants what needs a load slot and devices, in order, and tells the others what they wait for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from reconciler.plan.actions import FetchFiles
from reconciler.plan.case import Case
from reconciler.plan.devices import conflict, holders, making_way, obstacle, owners
from reconciler.plan.fitting import Lack, Ledger
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import Pool, Room
from reconciler.plan.observed import EffectKind, Leftover
from reconciler.plan.phase import State
from reconciler.plan.step import Step
from reconciler.plan.wording import pids


def rank(case: Case) -> tuple[int, bool, str]:
    """The order of grants: priority, then what serves nothing yet, then the name."""
    priority = case.wanted.priority if case.wanted is not None else 0
    return (-priority, case.process is not None, case.name)


def _turn(case: Case) -> tuple[bool, int, bool, str]:
    """First what was stopped for its successor: nobody else takes its slot, or its memory."""
    return (not case.seen.resuming, *rank(case))


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
    granted = {**steps, **_hopeless(cases, steps, ledger)}
    asking = sorted((case for case in cases if steps[case.name].needs_room), key=_turn)
    if not asking:
        return granted
    held = holders(cases, steps)
    totals = {pool: room.total_bytes for pool, room in rooms.items()}
    owned = owners(cases, held, totals)
    conflicts = {case.name: conflict(case, owned, held) for case in asking}
    going = making_way(
        (case for case in asking if case.process is not None and not conflicts[case.name]), held
    )
    loads = {case.name for case in cases if _loads(case)}
    for case in asking:
        step = steps[case.name]
        replaced = case.process is not None
        if never := ledger.never(case):
            granted[case.name] = _refused(step, never)
            continue
        clash = conflicts[case.name]
        if clash:
            granted[case.name] = replace(step.waiting(clash), state=State.BLOCKED)
            continue
        wait = (
            _after(leftovers)
            or obstacle(case, held, going if replaced else ())
            or _without_slot(loads - {case.name}, max_parallel_loads)
        )
        if wait:
            granted[case.name] = step.waiting(f"waits: {wait}")
            continue
        if lack := ledger.lack(case):
            granted[case.name] = _without_memory(step, lack)
            continue
        loads.add(case.name)
        ledger.enter(case)
    return granted


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
    processes = (case.process, *case.surplus)
    if any(each is not None and each.loads for each in processes):
        return True
    return case.stopping and case.wanted is not None


def _without_memory(step: Step, lack: Lack) -> Step:
    if lack.passes:
        return step.waiting(f"waits: {lack.reason}")
    return _refused(step, lack.reason)


def _refused(step: Step, why: str) -> Step:
    return replace(step.waiting(f"cannot start: {why}"), state=State.BLOCKED)


def _after(leftovers: Iterable[Leftover]) -> str | None:
    numbers = sorted(leftover.pid for leftover in leftovers)
    return f"{pids(numbers)} of an earlier agent must end first" if numbers else None


def _without_slot(others: set[ModelName], slots: int) -> str | None:
    if len(others) < slots:
        return None
    return f"{len(others)} of {slots} loads under way ({', '.join(sorted(others))})"
