"""Which GPUs the agent's own environment hides from it.

NVML, amdsmi and sysfs know nothing of masks, so they are applied here, once. torch has applied them
itself, and NVIDIA's container runtime has before anything in the container is asked (unsloth
PR#5172: applied twice, a mask names GPUs that are not there).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.plan.gpu_mode import ALL_IS_NO_GIFT, CONTAINER_MASK, GpuMode
from reconciler.plan.gpus import Gpu, Vendor

CUDA = "CUDA_VISIBLE_DEVICES"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"
_ORDINAL = "GPU_DEVICE_ORDINAL"
_NOTHING_SAID = ("", "all", "void")


_OLD_MIG = "MIG-GPU-"
_NONE_WISHED = ("", "-1", "none", "void", "nodevfiles")
"""What people and schedulers write to have no GPU at all; in small letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """`hidden`: by place in the devices given, the mask. `notes`: what could not be told, or names
    nothing. `faults`: of masks that name GPUs and leave none, as sentences."""

    hidden: Mapping[int, str]
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def masked(
    devices: Sequence[Gpu], environment: Mapping[str, str], mode: GpuMode, *, nvidia_here: bool
) -> Masked:
    """What the masks in `environment` hide of these devices, which stand in PCI order.

    `nvidia_here`: there are GPUs of NVIDIA, even if their driver does not answer now.
    """
    reading = _Reading(devices=devices)
    if mode is GpuMode.PLUGIN and environment.get(CONTAINER_MASK) == "all":
        reading.notes += [ALL_IS_NO_GIFT] if reading.shown(Vendor.NVIDIA) else []
        reading.hide(Vendor.NVIDIA, f"{CONTAINER_MASK}=all")
    _nvidia(reading, environment)
    # HIP reads CUDA's too, but where both vendors are it is meant for the others.
    inner = (_HIP, _ORDINAL) if nvidia_here else (_HIP, CUDA, _ORDINAL)
    name = next((name for name in inner if environment.get(name)), None)
    # ROCr's first: HIP counts what that leaves, and takes an empty mask for none.
    for each in (_ROCR, name):
        if each is not None and each in environment:
            _amd(reading, each, environment[each])
    return Masked(hidden=reading.hidden, notes=tuple(reading.notes), faults=tuple(reading.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """`missing`: the first entry that names nothing here; None: there is none."""

    kept: Sequence[int]
    missing: str | None = None


@dataclass(slots=True, kw_only=True)
class _Reading:
    """What the masks read so far have hidden and left."""

    devices: Sequence[Gpu]
    hidden: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def shown(self, vendor: Vendor) -> list[int]:
        """Of those that work."""
        return [at for at in self._left(vendor) if self.devices[at].unusable is None]

    def broken(self, vendor: Vendor) -> list[int]:
        return [at for at in self._left(vendor) if self.devices[at].unusable is not None]

    def _left(self, vendor: Vendor) -> list[int]:
        return [
            at
            for at, device in enumerate(self.devices)
            if device.vendor is vendor and at not in self.hidden
        ]

    def hide(self, vendor: Vendor, mask: str, kept: Collection[int] = ()) -> None:
        self.hidden.update({at: mask for at in self._left(vendor) if at not in kept})

    def apply(self, vendor: Vendor, mask: str, listed: _Listed) -> None:
        """A broken GPU is hidden where none is wished for; else it may be the one that is meant."""
        if listed.missing is None and not listed.kept:
            self.hide(vendor, mask)
            return
        broken = self.broken(vendor)
        any_there = bool(self.shown(vendor) or broken)
        self.hide(vendor, mask, (*listed.kept, *broken))
        if listed.missing is None or not any_there:
            return
        said = f"{mask}: {_not_here(listed.missing)}"
        if listed.kept:
            self.notes.append(f"{said}; what stands after it is hidden")
        else:
            self.faults.append(f"{said}, so all of {vendor}'s GPUs are hidden")


def _not_here(entry: str) -> str:
    if entry.startswith(_OLD_MIG):
        return (
            f"{entry} is an old way to name a MIG instance, which counts no more; write its "
            "MIG-… UUID, as `nvidia-smi -L` lists it"
        )
    return f"{entry} is the name of no GPU, or of several"


def _nvidia(reading: _Reading, environment: Mapping[str, str]) -> None:
    devices = reading.devices
    text = environment.get(CONTAINER_MASK)
    if text is not None and text not in _NOTHING_SAID and not text.startswith("/"):
        _container_runtime(reading, text)
    text = environment.get(CUDA)
    if text is None:
        return
    shown = reading.shown(Vendor.NVIDIA)
    cards = _cards(devices, shown)
    listed = _listed(
        text,
        by_number=lambda number: cards[number] if number < len(cards) else None,
        by_name=lambda name: _named(name, devices, shown),
    )
    reading.apply(Vendor.NVIDIA, f"{CUDA}={text}", listed)
    if (
        len({devices[at].name for at in cards}) > 1
        and any(entry.strip().isdigit() for entry in text.split(","))
        and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    ):
        reading.notes.append(
            f"{CUDA}={text} numbers GPUs of different kinds, and was read in PCI order; write "
            "UUIDs, or set CUDA_DEVICE_ORDER=PCI_BUS_ID too"
        )


def _container_runtime(reading: _Reading, text: str) -> None:
    """UUIDs name the same GPUs everywhere. Numbers are the machine's: they still count only where
    more GPUs are seen than they name, as in a privileged container."""
    devices, mask = reading.devices, f"{CONTAINER_MASK}={text}"
    entries = [] if text == "none" else [entry.strip() for entry in text.split(",")]
    shown, broken = reading.shown(Vendor.NVIDIA), reading.broken(Vendor.NVIDIA)
    if entries and not any(entry.startswith(("GPU-", "MIG-")) for entry in entries):
        cards = _cards(devices, [*shown, *broken])
        if len(cards) > len(entries) and all(entry.isdigit() for entry in entries):
            numbered = [at for at in (*shown, *broken) if str(devices[at].order) in entries]
            reading.hide(Vendor.NVIDIA, mask, numbered)
        return
    names = {at: {devices[at].uuid, devices[at].mig_of} for at in (*shown, *broken)}
    missing = [entry for entry in entries if all(entry not in names[at] for at in names)]
    kept = [at for at in names if not names[at].isdisjoint(entries)]
    if not missing:
        reading.hide(Vendor.NVIDIA, mask, kept)
    else:
        listed = _Listed(kept=kept, missing=missing[0])
        reading.apply(Vendor.NVIDIA, mask, listed)


def _amd(reading: _Reading, name: str, text: str) -> None:
    devices, shown = reading.devices, reading.shown(Vendor.AMD)
    ranked = shown
    if all(devices[at].order is not None for at in shown):
        ranked = sorted(shown, key=lambda at: devices[at].order or 0)
    elif len(shown) > 1:
        reading.notes.append(f"{name}={text} was read in PCI order: HIP's own order is not told")
    listed = _listed(
        text,
        by_number=lambda number: ranked[number] if number < len(ranked) else None,
        by_name=lambda name: _named(name, devices, ranked),
    )
    reading.apply(Vendor.AMD, f"{name}={text}", listed)


def _listed(
    text: str, *, by_number: Callable[[int], int | None], by_name: Callable[[str], int | None]
) -> _Listed:
    """As CUDA and HIP read it: an entry that is not there ends the list."""
    kept: list[int] = []
    for entry in (part.strip() for part in text.split(",")):
        at = by_number(int(entry)) if entry.isdecimal() else by_name(entry)
        if at is None:
            return _Listed(kept=kept, missing=None if entry.lower() in _NONE_WISHED else entry)
        kept.append(at)
    return _Listed(kept=kept)


def _named(name: str, devices: Sequence[Gpu], shown: Sequence[int]) -> int | None:
    """By UUID, or its beginning where that is one GPU's alone; of a GPU in MIG mode the first."""
    if not name:
        return None
    own = [at for at in shown if (devices[at].uuid or "").startswith(name)]
    if own:
        return own[0] if len(own) == 1 else None
    return next((at for at in shown if (devices[at].mig_of or "").startswith(name)), None)


def _cards(devices: Sequence[Gpu], shown: Sequence[int]) -> list[int]:
    """One place for each GPU: CUDA's numbers count GPUs, and mean the first MIG instance."""
    first: dict[str, int] = {}
    for at in shown:
        first.setdefault(devices[at].mig_of or devices[at].identity, at)
    return list(first.values())
