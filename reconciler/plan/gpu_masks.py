"""Which GPUs the agent's own environment hides from it.

NVML, amdsmi and sysfs know nothing of masks, so they are applied here, once. torch has applied them
itself, and NVIDIA's container runtime has before anything in the container is asked (unsloth
PR#5172: applied twice, a mask names GPUs that are not there).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.plan.gpu_mode import ALL_IS_NO_GIFT, CONTAINER_MASK, GpuMode
from reconciler.plan.gpus import Gpu, Vendor

CUDA = "CUDA_VISIBLE_DEVICES"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"
_ORDINAL = "GPU_DEVICE_ORDINAL"
_NOTHING_SAID = ("", "all", "void")


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """`hidden`: by place in the devices given, the mask. `notes`: what could not be told."""

    hidden: Mapping[int, str]
    notes: tuple[str, ...] = ()


def masked(
    devices: Sequence[Gpu], environment: Mapping[str, str], mode: GpuMode, *, nvidia_here: bool
) -> Masked:
    """What the masks in `environment` hide of these devices, which stand in PCI order.

    `nvidia_here`: there are GPUs of NVIDIA, even if their driver does not answer now.
    """
    hidden: dict[int, str] = {}
    notes: list[str] = []
    if mode is GpuMode.PLUGIN and environment.get(CONTAINER_MASK) == "all":
        shown = _of(Vendor.NVIDIA, devices)
        _keep(shown, (), f"{CONTAINER_MASK}=all", hidden)
        notes += [ALL_IS_NO_GIFT] if shown else []
    _nvidia(devices, environment, hidden, notes)
    # HIP reads CUDA's too, but where both vendors are it is meant for the others.
    inner = (_HIP, _ORDINAL) if nvidia_here else (_HIP, CUDA, _ORDINAL)
    name = next((name for name in inner if environment.get(name)), None)
    # ROCr's first: HIP counts what that leaves, and takes an empty mask for none.
    for each in (_ROCR, name):
        if each is not None and each in environment:
            _amd(devices, each, environment[each], hidden, notes)
    return Masked(hidden=hidden, notes=tuple(notes))


def _nvidia(
    devices: Sequence[Gpu], environment: Mapping[str, str], hidden: dict[int, str], notes: list[str]
) -> None:
    shown = _of(Vendor.NVIDIA, devices)
    text = environment.get(CONTAINER_MASK)
    if text is not None and text not in _NOTHING_SAID and not text.startswith("/"):
        _keep(shown, _container_runtime(text, devices, shown), f"{CONTAINER_MASK}={text}", hidden)
    text = environment.get(CUDA)
    if text is None:
        return
    shown = [at for at in shown if at not in hidden]
    cards = _cards(devices, shown)
    kept = _listed(
        text,
        by_number=lambda number: cards[number] if number < len(cards) else None,
        by_name=lambda name: _named(name, devices, shown),
    )
    _keep(shown, kept, f"{CUDA}={text}", hidden)
    if (
        len({devices[at].name for at in cards}) > 1
        and any(entry.strip().isdigit() for entry in text.split(","))
        and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    ):
        notes.append(
            f"{CUDA}={text} numbers GPUs of different kinds, and was read in PCI order; write "
            "UUIDs, or set CUDA_DEVICE_ORDER=PCI_BUS_ID too"
        )


def _container_runtime(text: str, devices: Sequence[Gpu], shown: Sequence[int]) -> list[int]:
    """UUIDs name the same GPUs everywhere. Numbers are the machine's: they still count only where
    more GPUs are seen than they name, as in a privileged container."""
    entries = [] if text == "none" else [entry.strip() for entry in text.split(",")]
    cards = _cards(devices, shown)
    if entries and not any(entry.startswith(("GPU-", "MIG-")) for entry in entries):
        if len(cards) <= len(entries) or not all(entry.isdigit() for entry in entries):
            return list(shown)
        return [at for at in shown if str(devices[at].order) in entries]
    return [
        at
        for at in shown
        if any(uuid in entries for uuid in (devices[at].uuid, devices[at].mig_of) if uuid)
    ]


def _amd(
    devices: Sequence[Gpu], name: str, text: str, hidden: dict[int, str], notes: list[str]
) -> None:
    shown = [at for at in _of(Vendor.AMD, devices) if at not in hidden]
    ranked = shown
    if all(devices[at].order is not None for at in shown):
        ranked = sorted(shown, key=lambda at: devices[at].order or 0)
    elif len(shown) > 1:
        notes.append(f"{name}={text} was read in PCI order: HIP's own order is not told")
    _keep(shown, _amd_listed(text, devices, ranked), f"{name}={text}", hidden)


def _amd_listed(text: str, devices: Sequence[Gpu], ranked: Sequence[int]) -> list[int]:
    return _listed(
        text,
        by_number=lambda number: ranked[number] if number < len(ranked) else None,
        by_name=lambda name: _named(name, devices, ranked),
    )


def _listed(
    text: str, *, by_number: Callable[[int], int | None], by_name: Callable[[str], int | None]
) -> list[int]:
    """As CUDA and HIP read it: an entry that is not there ends the list."""
    kept = []
    for entry in (part.strip() for part in text.split(",")):
        at = by_number(int(entry)) if entry.isdecimal() else by_name(entry)
        if at is None:
            break
        kept.append(at)
    return kept


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


def _of(vendor: Vendor, devices: Sequence[Gpu]) -> list[int]:
    return [
        at
        for at, device in enumerate(devices)
        if device.vendor is vendor and device.unusable is None
    ]


def _keep(shown: Sequence[int], kept: Sequence[int], mask: str, hidden: dict[int, str]) -> None:
    hidden.update({at: mask for at in shown if at not in kept})
