"""Whether what is to be loaded fits into memory, beside the loads that are under way."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.plan.actions import StopBackend
from reconciler.plan.case import Case, is_stopping
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import Need, Room
from reconciler.plan.observed import EffectKind, ObservedProcess, ProcessPhase
from reconciler.plan.step import Step
from reconciler.plan.wording import amount

_NAMED = 3
"""Holders in a reason: the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Why there is no memory for a load, as a clause. `passes`: it may be over by itself, once what
    is under way has ended."""

    reason: str
    passes: bool


class Ledger:
    """What of the free memory is promised to loads: no byte is counted on twice.

    A load under way has what its process holds already, so only the rest of its need is promised.
    """

    def __init__(
        self, room: Room | None, cases: Sequence[Case], steps: Mapping[ModelName, Step]
    ) -> None:
        self._room = room
        self._cases = cases
        self._promised = {case.name: _still_to_take(case) for case in cases if _loads(case)}
        self._leaving = [
            (case.name, process)
            for case in cases
            for process in _processes(case)
            if _leaves(case, process, steps[case.name])
        ]

    def enter(self, case: Case) -> None:
        """This one is begun: its memory is promised from now on."""
        self._promised[case.name] = _still_to_take(case)

    def lack(self, case: Case) -> Lack | None:
        """None: it fits, or nothing is known against it, or the manifest does not want to know.

        What the model's own old process holds comes back before the start.
        """
        need, room = case.seen.need, self._room
        if need is None or room is None or case.wanted is None:
            return None
        if case.wanted.spec.skip_memory_check:
            return None
        free_bytes = room.free_bytes + sum(each.held_bytes for each in _processes(case))
        promised = {name: size for name, size in self._promised.items() if name != case.name}
        if need.total_bytes <= free_bytes - sum(promised.values()):
            return None
        leaving = [(name, each) for name, each in self._leaving if name != case.name]
        coming_bytes = sum(process.held_bytes for _, process in leaving)
        if need.total_bytes <= free_bytes + coming_bytes:
            going = [f"{name} (pid {process.pid}) has ended" for name, process in leaving]
            until = " and ".join([*going, *(f"{name} has loaded" for name in sorted(promised))])
            return Lack(reason=f"it needs {need}; there may be room once {until}", passes=True)
        return Lack(reason=self._numbers(case, need, room, free_bytes), passes=False)

    def _numbers(self, case: Case, need: Need, room: Room, free_bytes: int) -> str:
        free = f"{amount(free_bytes)} of {amount(room.total_bytes)} are free"
        if case.process is not None and case.process.held_bytes:
            free += f" once pid {case.process.pid} has ended"
        holders = sorted(_holders(self._cases, case), reverse=True)[:_NAMED]
        held = "".join(f"; {name} holds {amount(size)}" for size, name in holders)
        return (
            f"it needs {need}; {free}{held}; make room, ask for a smaller context, or set "
            "skip_memory_check: true"
        )


def _processes(case: Case) -> tuple[ObservedProcess, ...]:
    return (*((case.process,) if case.process is not None else ()), *case.surplus)


def _loads(case: Case) -> bool:
    """Whether memory is being taken for what is desired: by a load, a start, or once the stop that
    makes way for it has ended. What another spec needs, that loads still, is not known."""
    if case.wanted is None:
        return False
    effect = case.seen.in_flight
    if effect is not None and effect.kind is EffectKind.START:
        return effect.spec_hash == case.wanted.spec_hash
    process = case.process
    if process is None or case.stopping:
        return case.stopping
    same = process.instance.spec_hash == case.wanted.spec_hash
    return same and process.phase is ProcessPhase.LOADING


def _still_to_take(case: Case) -> int:
    held = sum(process.held_bytes for process in _processes(case))
    return max(case.seen.need.own_bytes - held, 0) if case.seen.need is not None else 0


def _leaves(case: Case, process: ObservedProcess, step: Step) -> bool:
    """Whether it ends without a successor of its own."""
    action = step.action
    stops = isinstance(action, StopBackend) and action.nonce == process.nonce
    if not stops and not is_stopping(case.seen, process):
        return False
    return case.wanted is None or process is not case.process


def _holders(cases: Iterable[Case], asking: Case) -> Iterator[tuple[int, ModelName]]:
    for case in cases:
        held = sum(process.held_bytes for process in _processes(case))
        if case is not asking and held:
            yield held, case.name
