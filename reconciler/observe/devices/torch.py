"""The last resort: torch, where neither vendor's library has a device (WSL, Jetson).

Importing it takes seconds and 200 MB, and touching a GPU makes a context there: only in the child,
and only where its build could have one.
"""

import importlib.util
import os
import runpy
from pathlib import Path
from typing import Any

from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu, Vendor, gfx
from reconciler.plan.ids import GpuUuid


def ask_torch() -> Answer:
    """What torch of our own environment can use, with the environment's masks applied by it."""
    build = _build()
    if build is None:
        return _none("torch is not installed here", Cause.ABSENT)
    version, cuda, hip = build
    if cuda is None and hip is None:
        return _none(f"torch {version} is a build for the CPU", Cause.ABSENT)
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        torch = importlib.import_module("torch")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        vendor = Vendor.NVIDIA if hip is None else Vendor.AMD
        devices = tuple(_device(torch.cuda, order, vendor) for order in range(count))
    except Exception as exc:  # noqa: BLE001  builds and drivers fail in many ways
        return _none(f"torch {version} fails: {exc}", Cause.OTHER)
    kind = f"CUDA {cuda}" if hip is None else f"ROCm {hip}"
    if not devices:
        return _none(f"torch {version} for {kind} finds no GPU", Cause.NO_DEVICE)
    return Answer(
        step=Step.TORCH,
        reason=f"{count} GPU{'' if count == 1 else 's'}, torch {version} for {kind}",
        devices=devices,
    )


def _none(reason: str, cause: Cause) -> Answer:
    return Answer(step=Step.TORCH, reason=reason, cause=cause)


def _build() -> tuple[str, str | None, str | None] | None:
    """Its version and the versions of CUDA and HIP it was built for, without importing it."""
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        path = Path(folder, "version.py")
        if path.is_file():
            told = runpy.run_path(os.fspath(path))
            return str(told.get("__version__", "")), told.get("cuda"), told.get("hip")
    return None


def _device(cuda: Any, order: int, vendor: Vendor) -> Gpu:
    properties = cuda.get_device_properties(order)
    free, total = cuda.mem_get_info(order)
    uuid = str(getattr(properties, "uuid", ""))
    if vendor is Vendor.AMD:
        architecture = gfx(properties.gcnArchName)
    else:
        architecture = f"{properties.major}.{properties.minor}"
    return Gpu(
        vendor=vendor,
        uuid=GpuUuid(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}") if uuid else None,
        pci=_pci(properties),
        name=properties.name,
        architecture=architecture,
        memory_total_bytes=total,
        memory_used_bytes=total - free,
        memory_free_bytes=free,
        order=order,
        unified=bool(getattr(properties, "is_integrated", False)),
    )


def _pci(properties: Any) -> str | None:
    """Releases before 2.5 do not tell it."""
    numbers = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if not all(isinstance(number, int) for number in numbers):
        return None
    domain, bus, device = numbers
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"
