"""GPUs for tests of plans, by their PCI bus."""

from typing import Any

from reconciler.plan.gpu_survey import Answer, Step
from reconciler.plan.gpus import Gpu, Vendor
from reconciler.plan.ids import GpuUuid


def nvidia(bus: int, **more: Any) -> Gpu:
    values: dict[str, Any] = {
        "vendor": Vendor.NVIDIA,
        "uuid": GpuUuid(f"GPU-n{bus:x}"),
        "pci": f"0000:{bus:02x}:00.0",
        "name": "NVIDIA H100",
        "architecture": "9.0",
    }
    return Gpu(**values | more)


def amd(bus: int, architecture: str = "gfx942", **more: Any) -> Gpu:
    values: dict[str, Any] = {
        "vendor": Vendor.AMD,
        "uuid": GpuUuid(f"GPU-a{bus:x}"),
        "pci": f"0000:{bus:02x}:00.0",
        "name": "AMD Instinct",
        "architecture": architecture,
    }
    return Gpu(**values | more)


def answers(*devices: Gpu, by: Step = Step.NVML) -> list[Answer]:
    return [Answer(step=by, reason="told", devices=devices)]
