"""Which GPUs a llama-server gets: by variables that hide all others, and by name (PURE).

It is always told the names too: a device that is not there then ends the start, where without them
the model would run on the CPU, and say nothing (ollama#3647).
"""

import re
from collections.abc import Mapping, Sequence

from reconciler.backend.inventory import (
    LLAMA_SERVER_CUDA,
    LLAMA_SERVER_ROCM,
    LLAMA_SERVER_VULKAN,
    Build,
)
from reconciler.backend.options import Default
from reconciler.backend.visible_devices import by_hip_number, by_uuid
from reconciler.errors import Rejected
from reconciler.plan.gpus import Gpu, Vendor

HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
"""A build that could use GPUs must not take memory that nobody gave it."""
_ALL_LAYERS = "999"
_PREFIXES = {LLAMA_SERVER_CUDA: "CUDA", LLAMA_SERVER_ROCM: "ROCm"}
_OF_VENDOR = {
    Vendor.NVIDIA: re.compile(r"NVIDIA|GeForce|Quadro|Tesla|NVK", re.IGNORECASE),
    Vendor.AMD: re.compile(r"AMD|Radeon|RADV", re.IGNORECASE),
}


def variables(build: Build, devices: Sequence[Gpu]) -> Mapping[str, str]:
    """Raises Rejected where a device has no name that the engine knows."""
    if build.id == LLAMA_SERVER_CUDA:
        return by_uuid(devices, "llama-server")
    if build.id == LLAMA_SERVER_ROCM:
        return by_hip_number(devices, "llama-server")
    return HIDDEN


def told(build: Build, devices: Sequence[Gpu]) -> tuple[Default, ...]:
    """The flags; raises Rejected where it cannot be told which device is meant."""
    if not devices:
        return (Default("--device", "none", optional=True),)
    # For Vulkan the name alone selects it: no variable hides the others.
    optional = build.id != LLAMA_SERVER_VULKAN
    return (
        Default("--device", ",".join(_names(build, devices)), optional=optional),
        Default("--n-gpu-layers", _ALL_LAYERS),
    )


def _names(build: Build, devices: Sequence[Gpu]) -> list[str]:
    if build.id == LLAMA_SERVER_VULKAN:
        return [_vulkan_name(build, device) for device in devices]
    # Numbered anew among those that it sees.
    return [f"{_PREFIXES[build.id]}{at}" for at in range(len(devices))]


def _vulkan_name(build: Build, device: Gpu) -> str:
    """By its place among the vendor's: neither side tells the other's addresses."""
    cannot = f"cannot give {device.name} to {build.command[0]}:"
    if build.flags.complete and build.flags.find("--device") is None:
        raise Rejected(f"{cannot} it has no flag --device")
    if device.rank is None:
        raise Rejected(f"{cannot} Vulkan does not know parts of a GPU")
    pattern = _OF_VENDOR[device.vendor]
    names = [
        each.name
        for each in build.listed
        if each.name.startswith("Vulkan") and pattern.search(each.description)
    ]
    if len(names) != device.cards:
        raise Rejected(
            f"{cannot} which of its Vulkan devices that is cannot be told: of {device.vendor} it "
            f"lists {len(names)}, and there are {device.cards}"
        )
    return names[device.rank]
