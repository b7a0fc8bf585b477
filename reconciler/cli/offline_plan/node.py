"""One node of a fleet file in the planner's terms: its GPUs, its memories, its engines (PURE)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.backend.flags import Flags
from reconciler.backend.inventory import (
    BACKENDS,
    LLAMA_SERVER_VULKAN,
    Build,
    Inventory,
    Listed,
    Missing,
)
from reconciler.backend.vllm_flag_lists import flags_of
from reconciler.manifest.fleet_model import FleetEngine, FleetGpu, FleetNode
from reconciler.plan.desired import Desired
from reconciler.plan.gpu_claims import named
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.gpus import Gpu, Vendor, pci_address
from reconciler.plan.ids import GpuUuid
from reconciler.plan.memory import HOST, Pool, Room, pool_of

_VLLM = "vllm-"
_BRANDS = {Vendor.NVIDIA: "NVIDIA", Vendor.AMD: "AMD"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineNode:
    """`roll` None: its GPUs are not listed. `inventory`: where its engines are not listed (not
    `engines_known`), every one is taken to be there. `rooms`: of the memories that are told, with
    nothing of ours in them. `cache_budget_bytes`: None: not told. `is_bare`: nothing but its
    name is known."""

    name: str
    roll: Roll | None
    inventory: Inventory
    engines_known: bool
    rooms: Mapping[Pool, Room]
    memory_bytes: int | None = None
    cache_budget_bytes: int | None = None
    is_bare: bool = False

    def unknown(self, desired: Desired) -> Iterator[str]:
        """What of it nothing is concluded of, as notes."""
        models = [model.spec for model in desired.models if model.enabled]
        engines = sorted({spec.engine for spec in models if spec.engine is not None})
        if engines and not self.engines_known:
            yield f"whether it has the engines {', '.join(engines)}, only its agent knows"
        if self.is_bare:
            return
        if self.roll is None:
            yield "its GPUs are not listed, so it is not known whether models find theirs"
        elif any(gpu.memory_total_bytes is None for gpu in self.roll.usable):
            yield "the memory of its GPUs is not listed, so it is not known what fits"
        if not self.engines_known:
            yield "its engines are not listed, so every one is taken to be there"


def offline_node(told: FleetNode) -> OfflineNode:
    devices = _devices(told.gpus or ())
    roll = Roll(
        devices=devices,
        told=("the fleet file lists none",),
        mode=GpuMode.PLUGIN if told.gpu_mode == "plugin" else GpuMode.NODE,
    )
    rooms = {
        pool_of(device): Room(
            total_bytes=device.memory_total_bytes,
            free_bytes=device.memory_free_bytes or 0,
            where=named(device),
        )
        for device in roll.usable
        if device.memory_total_bytes is not None
    }
    if told.memory is not None:
        free = max(told.memory - told.reserved, 0)
        rooms[HOST] = Room(total_bytes=told.memory, free_bytes=free)
    return OfflineNode(
        name=told.name,
        roll=roll if told.gpus is not None else None,
        inventory=_inventory(told.engines, devices),
        engines_known=told.engines is not None,
        rooms=rooms,
        memory_bytes=told.memory,
        cache_budget_bytes=told.cache_budget,
        is_bare=told == FleetNode(name=told.name),
    )


def _devices(listed: tuple[FleetGpu, ...]) -> tuple[Gpu, ...]:
    """By number, as a survey has them."""
    every = [gpu for gpu in listed for _ in range(gpu.count)]
    taken = {gpu.index for gpu in every if gpu.index is not None}
    free = (number for number in range(len(every) + len(taken)) if number not in taken)
    cards = Counter(gpu.vendor for gpu in every)
    seen: Counter[str] = Counter()
    devices: list[Gpu] = []
    for gpu in every:
        order = seen[gpu.vendor]
        seen[gpu.vendor] += 1
        memory = gpu.memory
        devices.append(
            Gpu(
                vendor=Vendor(gpu.vendor),
                uuid=GpuUuid(gpu.uuid or f"{gpu.vendor}:{order}"),
                pci=pci_address(gpu.pci) if gpu.pci else None,
                name=gpu.name,
                architecture=gpu.architecture,
                memory_total_bytes=memory,
                memory_used_bytes=gpu.reserved if memory is not None else None,
                memory_free_bytes=max(memory - gpu.reserved, 0) if memory is not None else None,
                order=order,
                unusable=gpu.problem,
                index=gpu.index if gpu.index is not None else next(free),
                rank=order,
                cards=cards[gpu.vendor],
            )
        )
    return tuple(sorted(devices, key=lambda device: device.index or 0))


def is_untold(device: Gpu) -> bool:
    """Whether the file does not tell its UUID, and it is called by its number instead."""
    return device.uuid == f"{device.vendor}:{device.order}"


def _inventory(listed: tuple[FleetEngine, ...] | None, devices: Sequence[Gpu]) -> Inventory:
    if listed is None:
        return Inventory(builds=tuple(_build(id, None, None, devices) for id in BACKENDS))
    there = {engine.backend for engine in listed if engine.name is None}
    return Inventory(
        builds=tuple(_build(each.backend, each.name, each.version, devices) for each in listed),
        missing=tuple(
            Missing(id=id, reason="the fleet file lists none") for id in BACKENDS if id not in there
        ),
    )


def _build(id: str, name: str | None, version: str | None, devices: Sequence[Gpu]) -> Build:
    """Of llama.cpp's flags only a build itself knows the list. It sees every GPU that is there."""
    seen = enumerate(devices) if id == LLAMA_SERVER_VULKAN else ()
    return Build(
        id=id,
        name=name,
        command=(id,),
        version=version,
        detail=f"version {version}" if version is not None else "its version is not listed",
        flags=flags_of(version) if id.startswith(_VLLM) else Flags(),
        listed=tuple(
            Listed(f"Vulkan{at}", f"{_BRANDS[gpu.vendor]} {gpu.name}") for at, gpu in seen
        ),
    )
