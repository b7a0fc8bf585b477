"""Whether what is to be loaded fits into memory, beside the loads that are under way.

The host's memory and each GPU's are judged alike.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.plan.actions import StopBackend
from reconciler.plan.barred import never_fits
from reconciler.plan.case import Case, is_stopping
from reconciler.plan.desired import Strategy
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import Need, Pool, Room
from reconciler.plan.next_action import Step
from reconciler.plan.observed import EffectKind, ObservedProcess
from reconciler.plan.wording import amount

_CURE = "ask for a smaller context, or set skip_memory_check: true"
_CURE_OF_WEIGHTS = (
    "no context is small enough; use smaller weights{}, or set skip_memory_check: true"
)
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
        self, rooms: Mapping[Pool, Room], cases: Sequence[Case], steps: Mapping[ModelName, Step]
    ) -> None:
        self._rooms = rooms
        self._cases = cases
        self._loading = {case.name: (case, _loader(case)) for case in cases if _loads(case)}
        self._leaving = [
            (case.name, process)
            for case in cases
            for process in case.processes
            if _leaves(case, process, steps[case.name])
        ]

    def enter(self, case: Case, *, beside: bool = False) -> None:
        """This one is begun: its memory is promised from now on. `beside`: see `lack`."""
        self._loading[case.name] = (case, () if beside else case.processes)

    def lack(self, case: Case, *, beside: bool = False) -> Lack | None:
        """None: it fits, or nothing is known against it, or the manifest does not want to know.

        What the model's own old process holds comes back before the start, unless it is started
        `beside` that. To do so unasked, the manifest's word is not enough.
        """
        skip = not (beside and case.wanted is not None and case.wanted.strategy is Strategy.AUTO)
        found = [
            lack
            for need, room, pool in self._asked(case, skip=skip)
            if (lack := self._lack_of(case, need, room, pool, beside=beside)) is not None
        ]
        return min(found, key=lambda lack: lack.passes, default=None)

    def never(self, case: Case) -> str | None:
        """Why it would not fit into what this node has in all, as a clause."""
        for need, room, _ in self._asked(case):
            if not never_fits(need, room.total_bytes):
                continue
            if need.overflows:
                return _overflow(need, room)
            has = f", which has {amount(room.total_bytes)} in all"
            return f"it needs {need}{room.on or ' on this node'}{has}; {_cure(need, room)}"
        return None

    def _asked(self, case: Case, *, skip: bool = True) -> Iterator[tuple[Need, Room, Pool]]:
        if case.wanted is None or (skip and case.wanted.spec.skip_memory_check):
            return
        for pool, need in case.seen.needs.items():
            if (room := self._rooms.get(pool)) is not None:
                yield need, room, pool

    def _lack_of(
        self, case: Case, need: Need, room: Room, pool: Pool, *, beside: bool
    ) -> Lack | None:
        if room.unknown is not None:
            return Lack(reason=f"it needs {need}{room.on}; {room.unknown}", passes=True)
        free_bytes = room.free_bytes + (0 if beside else _held(case.processes, pool))
        promised = {
            name: size
            for name, (each, loaders) in self._loading.items()
            if name != case.name and (size := _still_to_take(each, loaders, pool, room))
        }
        if need.total_bytes <= free_bytes - sum(promised.values()):
            return None
        leaving = [
            (name, each)
            for name, each in self._leaving
            if name != case.name and each.held.get(pool)
        ]
        coming_bytes = sum(process.held[pool] for _, process in leaving)
        if need.total_bytes <= free_bytes + coming_bytes:
            going = [f"{name} (pid {process.pid}) has ended" for name, process in leaving]
            until = " and ".join([*going, *(f"{name} has loaded" for name in sorted(promised))])
            reason = f"it needs {need}{room.on}; there may be room once {until}"
            return Lack(reason=reason, passes=True)
        numbers = self._numbers(case, need, room, pool, beside=beside)
        if room.returning:
            late = " and ".join(room.returning)
            return Lack(reason=f"{numbers}; what {late} held may not be back yet", passes=True)
        return Lack(reason=f"{numbers}; make room, {_CURE}", passes=False)

    def _numbers(self, case: Case, need: Need, room: Room, pool: Pool, *, beside: bool) -> str:
        free_bytes = room.free_bytes + (0 if beside else _held(case.processes, pool))
        free = f"{amount(free_bytes)} of {amount(room.total_bytes)} are free"
        if case.process is not None and case.process.held.get(pool):
            when = "beside" if beside else "once"
            free += f" {when} pid {case.process.pid}{'' if beside else ' has ended'}"
        ours = sorted(_holders(self._cases, case, pool), reverse=True)[:_NAMED]
        held = [f"{name} holds {amount(size)}" for size, name in ours]
        held += [str(user) for user in room.users[:_NAMED]]
        held += [room.untold] if room.untold is not None else []
        return "; ".join([f"it needs {need}{room.on}", free, *held])


def _cure(need: Need, room: Room) -> str:
    if (need.weights_bytes or 0) + need.overhead_bytes <= room.total_bytes:
        return _CURE
    return _CURE_OF_WEIGHTS.format(" or more GPUs" if room.where is not None else "")


def _overflow(need: Need, room: Room) -> str:
    share = f"its share of {amount(need.claimed_bytes or 0)}{room.on}"
    return (
        f"{share} does not hold its weights and the KV cache of one full context ({need.parts}): "
        f"raise gpu_memory, {_CURE}"
    )


def _held(processes: Iterable[ObservedProcess], pool: Pool) -> int:
    return sum(process.held.get(pool, 0) for process in processes)


def _loads(case: Case) -> bool:
    """Whether memory is being taken for what is desired: by a load, a start, or once the stop that
    makes way for it has ended. What another spec needs, that loads still, is not known."""
    if case.wanted is None:
        return False
    effect = case.seen.in_flight
    if effect is not None and effect.kind is EffectKind.START:
        return effect.spec_hash == case.wanted.spec_hash
    process = case.coming or case.process
    if process is None or case.stopping:
        return case.stopping
    same = process.instance.spec_hash == case.wanted.spec_hash
    return same and process.loads


def _loader(case: Case) -> tuple[ObservedProcess, ...]:
    """Whose memory is that of the load: its own, or what the process before it gives back."""
    effect = case.seen.in_flight
    if effect is None or effect.kind is not EffectKind.START:
        return case.processes if case.coming is None else (case.coming,)
    return () if case.successor is None else (case.successor,)


def _still_to_take(case: Case, loaders: Iterable[ObservedProcess], pool: Pool, room: Room) -> int:
    """All that there is, where it grows: how far is seen once it has loaded."""
    need = case.seen.needs.get(pool)
    if need is None:
        return 0
    own_bytes = room.total_bytes if need.grows else need.own_bytes
    return max(own_bytes - _held(loaders, pool), 0)


def _leaves(case: Case, process: ObservedProcess, step: Step) -> bool:
    """Whether it ends without a successor of its own."""
    action = step.action
    stops = isinstance(action, StopBackend) and action.nonce == process.nonce
    if not stops and not is_stopping(case.seen, process):
        return False
    return case.wanted is None or process is not case.process


def _holders(cases: Iterable[Case], asking: Case, pool: Pool) -> Iterator[tuple[int, ModelName]]:
    for case in cases:
        held = _held(case.processes, pool)
        if case is not asking and held:
            yield held, case.name
