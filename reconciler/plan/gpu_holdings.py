"""What processes hold of devices, and what was promised to those that have not started yet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.plan.desired import DesiredModel
from reconciler.plan.ids import GpuUuid, ModelName, SpecHash


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a process of a model, or a start under way, has of devices. `share`: of each of them;
    None: the whole. `serves`: it is loaded. `leaves`: it is being stopped."""

    spec_hash: SpecHash
    gpus: tuple[GpuUuid, ...] = ()
    share: float | None = None
    serves: bool = False
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a model was given that has not started on it yet. `spec_hash`: of what was to start.
    `share`: see `Holding`. `idle`: it could not be started there, and keeps them from nobody."""

    spec_hash: SpecHash
    gpus: tuple[GpuUuid, ...]
    share: float | None = None
    to_spare: bool = False
    idle: bool = False


Staying = Mapping[GpuUuid, Mapping[ModelName, tuple[float | None, ...]]]
"""The shares of each device that models have, and need not leave."""


def staying_on(
    models: Iterable[DesiredModel], held: Mapping[ModelName, Sequence[Holding]]
) -> Staying:
    """All but those of models that are to stop, of processes that are being stopped, and of those
    beside one that is as it is wanted."""
    specs = {model.name: model.spec_hash for model in models}
    found: dict[GpuUuid, dict[ModelName, tuple[float | None, ...]]] = {}
    for name in specs.keys() & held.keys():
        there = [each for each in held[name] if not each.leaves]
        wanted = [each for each in there if each.spec_hash == specs[name]]
        for each in wanted or there:
            for gpu in each.gpus:
                shares = found.setdefault(gpu, {})
                shares[name] = (*shares.get(name, ()), each.share)
    return found
