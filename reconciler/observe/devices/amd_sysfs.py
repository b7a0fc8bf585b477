"""AMD's GPUs without any library: what the kernel's driver tells below /sys.

    class/kfd/kfd/topology/nodes/N/properties    what can compute, in HIP's order
    class/drm/renderD<M>/device/…                its memory, load and name
    class/kfd/kfd/proc/PID/vram_<gpu_id>         who uses how much of it

A container sees the whole machine there, so what it was not given in /dev is not ours.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.observe.devices.device_files import (
    Closed,
    closed,
    counted,
    not_used,
    without_devices,
)
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import (
    AMD_GPU,
    Gpu,
    GpuProcess,
    Memory,
    Vendor,
    gfx_of_kfd,
    percent,
    with_memory,
)
from reconciler.plan.ids import GpuUuid


def ask_sysfs(root: Path) -> Answer:
    """Every GPU that the kernel lets compute and that /dev has. `root`: `/`, or a tree like it."""
    kfd = root / "sys/class/kfd/kfd"
    nodes = kfd / "topology/nodes"
    try:
        names = sorted((name for name in os.listdir(nodes) if name.isdigit()), key=int)
    except OSError:
        reason = "the kernel's driver amdgpu is not loaded (there is no /sys/class/kfd)"
        return Answer(step=Step.SYSFS, reason=reason, cause=Cause.ABSENT)
    gpus = [gpu for name in names if (gpu := _node(nodes / name)) is not None]
    if not gpus:
        reason = "amdgpu is loaded and has no GPU that this process may see"
        return Answer(step=Step.SYSFS, reason=reason, cause=Cause.NO_DEVICE)
    if (shut := closed(root, "kfd")) is not None:
        return _none(f"{counted(len(gpus), ())} here, but {shut}", [shut])
    notes: list[str] = []
    shut_away: list[Closed] = []
    devices: list[Gpu] = []
    for gpu in gpus:
        shut = closed(root, f"dri/renderD{gpu.number('drm_render_minor')}")
        if shut is None:
            devices.append(_device(root, gpu, order=len(devices)))
        else:
            shut_away.append(shut)
            notes += not_used(_pci(gpu), shut)
    if not devices:
        return _none(f"{counted(len(gpus), ())} here, but none is given to us", shut_away, notes)
    return Answer(
        step=Step.SYSFS,
        reason=counted(len(gpus), shut_away),
        devices=tuple(devices),
        notes=tuple(notes),
        driver=_text(root / "sys/module/amdgpu/version"),
    )


def _none(reason: str, shut: Collection[Closed], notes: Iterable[str] = ()) -> Answer:
    cause = without_devices(shut)
    return Answer(step=Step.SYSFS, reason=reason, cause=cause, notes=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """`gpu_id`: the driver's own number for it."""

    properties: Mapping[str, int]
    gpu_id: str | None

    def number(self, key: str) -> int:
        """0 where an older kernel does not tell."""
        return self.properties.get(key, 0)


def _node(path: Path) -> _Node | None:
    """None for a CPU, and for what the container may not see (reading that is refused)."""
    text = _text(path / "properties")
    properties = {}
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if value.isdigit():
            properties[key] = int(value)
    if not properties.get("gfx_target_version") or not properties.get("simd_count"):
        return None
    return _Node(properties=properties, gpu_id=_text(path / "gpu_id"))


def _device(root: Path, node: _Node, order: int) -> Gpu:
    folder = root / f"sys/class/drm/renderD{node.number('drm_render_minor')}/device"
    unique = node.number("unique_id")
    gpu = Gpu(
        vendor=Vendor.AMD,
        uuid=GpuUuid(f"GPU-{unique:016x}") if unique else None,
        pci=_pci(node),
        name=_text(folder / "product_name") or AMD_GPU,
        architecture=gfx_of_kfd(node.number("gfx_target_version")),
        utilization=percent(_number(folder / "gpu_busy_percent")),
        order=order,
        processes=_processes(root / "sys/class/kfd/kfd/proc", node.gpu_id),
    )
    return with_memory(gpu, _memory(folder, "vram"), _memory(folder, "gtt"))


def _pci(node: _Node) -> str:
    """The partition of a partitioned GPU stands above its address; it is told as the function, as
    amdsmi does."""
    location = node.number("location_id")
    function = location >> 28 or location & 7
    bus, device = location >> 8 & 0xFF, location >> 3 & 0x1F
    return f"{node.number('domain'):04x}:{bus:02x}:{device:02x}.{function:x}"


def _memory(folder: Path, kind: str) -> Memory | None:
    total = _number(folder / f"mem_info_{kind}_total")
    if total is None:
        return None
    return Memory(total_bytes=total, used_bytes=_number(folder / f"mem_info_{kind}_used"))


def _processes(proc: Path, gpu_id: str | None) -> tuple[GpuProcess, ...] | None:
    try:
        pids = [int(name) for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return None
    taken = {pid: _number(proc / str(pid) / f"vram_{gpu_id}") for pid in pids}
    return tuple(
        GpuProcess(pid=pid, memory_bytes=used) for pid, used in sorted(taken.items()) if used
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None
