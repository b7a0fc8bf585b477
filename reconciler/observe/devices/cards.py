"""The cards on the PCI bus, which need no driver to be seen: what nobody answers for is told."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu, Vendor, pci_address

_VENDORS = {"0x10de": Vendor.NVIDIA, "0x1002": Vendor.AMD}
_CLASSES = ("0x03", "0x12")  # display controllers, processing accelerators
_MODULES = {Step.NVML: (Vendor.NVIDIA, "nvidia"), Step.AMDSMI: (Vendor.AMD, "amdgpu")}
"""The kernel's, which the libraries of these steps need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    vendor: Vendor
    pci: str


def unclaimed_cards(devices: Iterable[Gpu], root: Path = Path("/")) -> list[Card]:
    """Cards of either vendor that are none of these devices, in PCI order.

    A container sees the whole machine's here, so one more than it was given is no fault. `root`:
    where /sys is.
    """
    claimed = {(device.pci or "").partition(".")[0] for device in devices}
    bus = root / "sys/bus/pci/devices"
    try:
        names = sorted(os.listdir(bus))
    except OSError:
        return []
    found = [(name, _vendor(bus / name)) for name in names if pci_address(name) is not None]
    return [
        Card(vendor=vendor, pci=name)
        for name, vendor in found
        if vendor is not None and name.partition(".")[0] not in claimed
    ]


def with_cards(answers: Sequence[Answer], root: Path = Path("/")) -> tuple[Answer, ...]:
    """The same, with what the bus tells besides.

    Where a driver is not loaded, whether there is a card for it: then it is at fault, as after an
    upgrade of the kernel; where the kernel's module is loaded all the same, only this container was
    given no GPU. Where GPUs are lost and not told by name, their addresses, if these are for sure.
    """
    devices = [device for answer in answers for device in answer.devices]
    cards = unclaimed_cards(devices, root)
    return tuple(_located(_with_cards(answer, root), cards, root) for answer in answers)


def _with_cards(answer: Answer, root: Path) -> Answer:
    if answer.cause is not Cause.NO_DRIVER or answer.step not in _MODULES:
        return answer
    vendor, module = _MODULES[answer.step]
    cards = [card.pci for card in unclaimed_cards((), root) if card.vendor is vendor]
    if not cards or (root / "sys/module" / module).is_dir():
        return answer
    reason = f"{answer.reason}; on the PCI bus: {', '.join(cards)}"
    return replace(answer, cause=Cause.UNLOADED, reason=reason)


def _located(answer: Answer, cards: Iterable[Card], root: Path) -> Answer:
    """A container sees others' cards too: only where there are just as many as are missed."""
    if answer.step not in _MODULES:
        return answer
    vendor, module = _MODULES[answer.step]
    free = [c.pci for c in cards if c.vendor is vendor and _driver(root, c.pci) in (None, module)]
    if len(free) != sum(device.is_nameless for device in answer.devices):
        return answer
    addresses = map(pci_address, free)
    devices = (
        replace(device, pci=next(addresses)) if device.is_nameless else device
        for device in answer.devices
    )
    return replace(answer, devices=tuple(devices))


def _driver(root: Path, address: str) -> str | None:
    """The kernel's module that has a card; None: none, or it is not told."""
    try:
        return Path(os.readlink(root / "sys/bus/pci/devices" / address / "driver")).name
    except OSError:
        return None


def _vendor(folder: Path) -> Vendor | None:
    """None for what is no GPU, or none of these vendors'."""
    try:
        kind = (folder / "class").read_text(encoding="ascii")
        vendor = (folder / "vendor").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return _VENDORS.get(vendor) if kind.startswith(_CLASSES) else None
