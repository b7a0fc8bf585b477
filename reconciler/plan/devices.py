"""Who holds a GPU, who may have it, and who makes way for whom: no GPU is ever given to two, but
for those that say which share of it they take."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reconciler.plan.actions import StopBackend
from reconciler.plan.barred import is_barred
from reconciler.plan.case import Case, is_stopping
from reconciler.plan.ids import GpuUuid, ModelName
from reconciler.plan.memory import Pool
from reconciler.plan.next_action import Step
from reconciler.plan.observed import EffectKind
from reconciler.plan.shares import fit_together


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What sits on a device. `leaving`: it goes without needing anything itself. `share`: of the
    device; None: the whole."""

    model: ModelName
    what: str
    leaving: bool = False
    share: float | None = None

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
        for process in case.processes:
            action = step.action
            stops = isinstance(action, StopBackend) and action.nonce == process.nonce
            leaving = is_stopping(case.seen, process) or (stops and not step.needs_room)
            holder = Holder(
                model=case.name,
                what=f"pid {process.pid}",
                leaving=leaving,
                share=process.gpu_share,
            )
            for gpu in process.gpus:
                held[gpu] = (*held.get(gpu, ()), holder)
        effect = case.seen.in_flight
        if effect is not None and effect.kind is EffectKind.START:
            for gpu in effect.gpus:
                holder = Holder(model=case.name, what="a start under way", share=effect.gpu_share)
                held[gpu] = (*held.get(gpu, ()), holder)
    return held


def owners(
    cases: Iterable[Case], held: Holders, totals: Mapping[Pool, int]
) -> dict[GpuUuid, tuple[Case, ...]]:
    """Of the desired models that claim a device, those that get it.

    That is the one that holds it already, else the first by priority and name that is not barred;
    and after it, in the same order, those whose shares fit beside. `totals`: see `is_barred`.
    """
    claimed: dict[GpuUuid, list[Case]] = {}
    for case in cases:
        for gpu in case.gpus:
            claimed.setdefault(gpu, []).append(case)
    owned: dict[GpuUuid, tuple[Case, ...]] = {}
    for gpu, rivals in claimed.items():
        for case in sorted(rivals, key=lambda each: _rank(each, gpu, held, totals)):
            before = owned.get(gpu, ())
            if fit_together([case.gpu_share, *(each.gpu_share for each in before)]):
                owned[gpu] = (*before, case)
    return owned


def _rank(
    case: Case, gpu: GpuUuid, held: Holders, totals: Mapping[Pool, int]
) -> tuple[bool, bool, int, str]:
    holds = any(holder.model == case.name for holder in held.get(gpu, ()))
    priority = case.wanted.priority if case.wanted is not None else 0
    barred = case.wanted is not None and is_barred(case.wanted, case.seen, totals)
    return (not holds, barred, -priority, case.name)


def conflict(case: Case, owned: Mapping[GpuUuid, tuple[Case, ...]], held: Holders) -> str | None:
    """Why the manifest gives one of this model's devices to another; None: it does not."""
    for gpu in case.gpus:
        there = owned[gpu]
        if any(owner.name == case.name for owner in there):
            continue
        if case.gpu_share is not None and all(owner.gpu_share is not None for owner in there):
            beside = " and ".join(f"{owner.gpu_share:.0%} of {owner.name}" for owner in there)
            return f"GPU {gpu} has no room for {case.gpu_share:.0%} beside {beside}"
        owner = there[0]
        if any(holder.model == owner.name for holder in held.get(gpu, ())):
            return f"GPU {gpu} is claimed by {owner.name} too, which holds it"
        return f"GPU {gpu} is claimed by {owner.name} too, which comes first"
    return None


def obstacle(
    case: Case,
    held: Holders,
    making_way: Collection[ModelName] | None = None,
    *,
    beside: bool = False,
) -> str | None:
    """Which holder keeps this model from its devices; None: they are free, or its own.

    `making_way`: given where it is only to be stopped for its successor: holders in it, and those
    that are leaving, do not count then. `beside`: its own stay, for which there is room.
    """
    for gpu in case.gpus:
        there = held.get(gpu, ())
        others = [
            holder
            for holder in there
            if holder.model != case.name
            and (making_way is None or not (holder.leaving or holder.model in making_way))
        ]
        own = [each.share for each in there if beside and each.model == case.name]
        if not fit_together([case.gpu_share, *own, *(holder.share for holder in others)]):
            return f"GPU {gpu} is held by {next((h for h in others if h.leaving), others[0])}"
    return None


def own_obstacle(case: Case, held: Holders) -> str | None:
    """Which process of its own leaves no room for another beside it; None: none does.

    Others that are leaving do not count: they are waited for.
    """
    for gpu in case.gpus:
        there = [each for each in held.get(gpu, ()) if each.model == case.name or not each.leaving]
        own = [holder for holder in there if holder.model == case.name]
        if own and not fit_together([case.gpu_share, *(holder.share for holder in there)]):
            return f"GPU {gpu} is held by {own[0]}"
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
