"""Who holds a GPU, who may have it, and who makes way for whom: no GPU is ever given to two."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reconciler.plan.actions import StopBackend
from reconciler.plan.case import Case, is_stopping
from reconciler.plan.ids import GpuUuid, ModelName
from reconciler.plan.observed import EffectKind
from reconciler.plan.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What sits on a device. `leaving`: it goes without needing anything itself."""

    model: ModelName
    what: str
    leaving: bool = False

    def __str__(self) -> str:
        return f"{self.model} ({self.what}{', which is being stopped' if self.leaving else ''})"


Holders = Mapping[GpuUuid, tuple[Holder, ...]]


def holders(
    cases: Iterable[Case], steps: Mapping[ModelName, Step]
) -> dict[GpuUuid, tuple[Holder, ...]]:
    """All that sits on devices: live processes and starts under way.

    Leftovers are left out: while there is one, nothing starts at all.
    """
    held: dict[GpuUuid, tuple[Holder, ...]] = {}
    for case in cases:
        step = steps[case.name]
        for process in (case.process, *case.surplus):
            if process is None:
                continue
            action = step.action
            stops = isinstance(action, StopBackend) and action.nonce == process.nonce
            leaving = is_stopping(case.seen, process) or (stops and not step.needs_room)
            holder = Holder(model=case.name, what=f"pid {process.pid}", leaving=leaving)
            for gpu in process.gpus:
                held[gpu] = (*held.get(gpu, ()), holder)
        effect = case.seen.in_flight
        if effect is not None and effect.kind is EffectKind.START:
            for gpu in effect.gpus:
                holder = Holder(model=case.name, what="a start under way")
                held[gpu] = (*held.get(gpu, ()), holder)
    return held


def owners(cases: Iterable[Case], held: Holders) -> dict[GpuUuid, Case]:
    """Of the desired models that claim a device, the one that gets it.

    That is the one that holds it already, else the first by priority and name.
    """
    owned: dict[GpuUuid, Case] = {}
    for case in cases:
        for gpu in case.gpus:
            rival = owned.get(gpu)
            if rival is None or _rank(case, gpu, held) < _rank(rival, gpu, held):
                owned[gpu] = case
    return owned


def _rank(case: Case, gpu: GpuUuid, held: Holders) -> tuple[bool, int, str]:
    holds = any(holder.model == case.name for holder in held.get(gpu, ()))
    priority = case.wanted.priority if case.wanted is not None else 0
    return (not holds, -priority, case.name)


def conflict(case: Case, owned: Mapping[GpuUuid, Case], held: Holders) -> str | None:
    """Why the manifest gives one of this model's devices to another; None: it does not."""
    for gpu in case.gpus:
        owner = owned[gpu]
        if owner.name == case.name:
            continue
        if any(holder.model == owner.name for holder in held.get(gpu, ())):
            return f"GPU {gpu} is claimed by {owner.name} too, which holds it"
        return f"GPU {gpu} is claimed by {owner.name} too, which comes first"
    return None


def obstacle(case: Case, held: Holders, making_way: Collection[ModelName] = ()) -> str | None:
    """Which holder keeps this model from its devices; None: they are free, or its own.

    Holders in `making_way`, and those that are leaving, do not count where that is given.
    """
    for gpu in case.gpus:
        for holder in held.get(gpu, ()):
            if holder.model == case.name or holder.model in making_way:
                continue
            if holder.leaving and case.process is not None:
                continue
            return f"GPU {gpu} is held by {holder}"
    return None


def making_way(replacing: Iterable[Case], held: Holders) -> set[ModelName]:
    """Those of the models to be replaced that can all go, counting on each other's devices.

    Two models that swap devices would wait for each other for ever. One that must wait for a model
    that stays keeps serving instead, and whoever counted on it stays too.
    """
    going = {case.name: case for case in replacing}
    while stuck := [name for name, case in going.items() if obstacle(case, held, going)]:
        for name in stuck:
            del going[name]
    return set(going)
