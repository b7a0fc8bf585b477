"""The GPUs of a node as one list: in PCI order, those that can be used numbered from 0."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.plan.gpu_masks import masked
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu, Vendor, pci_address
from reconciler.plan.ids import GpuUuid

_NO_NVIDIA = (Cause.ABSENT, Cause.NO_DRIVER, Cause.NO_DEVICE, Cause.NOT_ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """`devices`: all of them in PCI order; `notes`: what of the masks could not be told. `broken`:
    what cannot be used, and nobody wished so. `faults`: of masks, as sentences."""

    devices: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()
    broken: frozenset[GpuUuid] = frozenset()
    faults: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """By index."""
        return tuple(device for device in self.devices if device.index is not None)


def inventory(
    answers: Sequence[Answer],
    environment: Mapping[str, str],
    named: Collection[str] = (),
    mode: GpuMode = GpuMode.NODE,
) -> Inventory:
    """Unite what the steps of the chain have found, and number it.

    `environment`: the agent's own, for its masks; torch has applied them itself. `named`: what the
    manifest or a model asks for; an APU beside a discrete GPU counts only if its PCI address is
    there.
    """
    by_torch = [gpu for answer in answers if answer.step is Step.TORCH for gpu in answer.devices]
    others = [gpu for answer in answers if answer.step is not Step.TORCH for gpu in answer.devices]
    ordered = _told_apart(sorted(others, key=pci_order))
    nvidia_here = any(
        answer.step is Step.NVML and (answer.devices or answer.cause not in _NO_NVIDIA)
        for answer in answers
    )
    mask = masked(ordered, environment, mode, nvidia_here=nvidia_here)
    devices = [
        replace(device, unusable=f"hidden by {mask.hidden[at]}") if at in mask.hidden else device
        for at, device in enumerate(ordered)
    ]
    devices = _ranked(_without_apus([*devices, *sorted(by_torch, key=pci_order)], named))
    broken = [device for at, device in enumerate(ordered) if at not in mask.hidden]
    numbers = iter(range(len(devices)))
    return Inventory(
        devices=tuple(
            replace(device, index=next(numbers)) if device.unusable is None else device
            for device in devices
        ),
        notes=mask.notes,
        broken=frozenset(device.identity for device in broken if device.unusable is not None),
        faults=mask.faults,
    )


def pci_order(device: Gpu) -> tuple[bool, list[int], int, int]:
    numbers = [int(part, 16) for part in (device.pci or "").replace(".", ":").split(":") if part]
    return (device.pci is None, numbers, device.order or 0, device.slot)


def _ranked(devices: Sequence[Gpu]) -> list[Gpu]:
    """Vulkan's loader sorts GPUs by kind, discrete ones first, then by PCI address; masks of other
    libraries mean nothing to it."""
    ranks: dict[GpuUuid, int] = {}
    counted: Counter[Vendor] = Counter()
    for device in sorted(devices, key=lambda device: device.integrated):
        if device.mig_of is None and device.pci is not None and device.pci.endswith(".0"):
            ranks[device.identity] = counted[device.vendor]
            counted[device.vendor] += 1
    return [
        replace(device, rank=ranks.get(device.identity), cards=counted[device.vendor])
        for device in devices
    ]


def _told_apart(devices: Sequence[Gpu]) -> list[Gpu]:
    """A UUID that several have (partitions of one GPU) names none of them."""
    count = Counter(device.uuid for device in devices)
    return [
        replace(device, uuid=None) if device.uuid and count[device.uuid] > 1 else device
        for device in devices
    ]


def _without_apus(devices: Sequence[Gpu], named: Collection[str]) -> list[Gpu]:
    if all(device.integrated for device in devices if device.unusable is None):
        return list(devices)
    asked_for = {pci_address(name) for name in named}
    reason = "an APU beside a discrete GPU; it counts only if gpu_ids names its PCI address"
    return [
        replace(device, unusable=reason)
        if device.integrated and device.unusable is None and device.pci not in asked_for
        else device
        for device in devices
    ]
