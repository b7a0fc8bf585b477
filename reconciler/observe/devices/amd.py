"""AMD's GPUs, as amdsmi tells of them: the Python module that comes with ROCm.

It must be of the same release as ROCm's libraries, so ROCm's own goes before what pip installed.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconciler.observe.devices.amd_lost import Silent, with_lost
from reconciler.observe.devices.amd_sysfs import ask_sysfs
from reconciler.observe.devices.device_files import (
    Closed,
    closed,
    counted,
    not_used,
    without_devices,
)
from reconciler.observe.devices.told import Told
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import (
    AMD_GPU,
    Gpu,
    GpuProcess,
    Memory,
    Vendor,
    gfx,
    pci_address,
    percent,
    with_memory,
)
from reconciler.plan.ids import GpuUuid

_NOT_SUPPORTED, _NO_PERMISSION, _DRIVER_NOT_LOADED = 2, 10, 34
_CAUSES = {_NO_PERMISSION: Cause.NO_PERMISSION, _DRIVER_NOT_LOADED: Cause.NO_DRIVER}
_NOT_TOLD = ("", "N/A", "GPU-XX")
"""The last one is ROCr's for a GPU without a UUID."""


def ask_amdsmi(environment: Mapping[str, str], root: Path) -> Answer:
    """Every GPU that this process may see; the library ends with it.

    `environment`: for ROCM_HOME and ROCM_PATH. `root`: where /dev is.
    """
    try:
        amdsmi = _module(environment)
    except Exception as exc:  # noqa: BLE001  a missing library is a KeyError, another release anything
        return _not_imported(exc)
    try:
        amdsmi.amdsmi_init()
        return _look(amdsmi, root)
    except amdsmi.AmdSmiException as exc:
        return _failed(exc)


def _module(environment: Mapping[str, str]) -> Any:
    rocm = environment.get("ROCM_HOME") or environment.get("ROCM_PATH") or "/opt/rocm"
    shipped = Path(rocm, "share", "amd_smi")
    if (shipped / "amdsmi").is_dir():
        sys.path.insert(0, os.fspath(shipped))
    return importlib.import_module("amdsmi")


def _not_imported(exc: Exception) -> Answer:
    match exc:
        case ModuleNotFoundError(name="amdsmi"):
            cause, reason = Cause.ABSENT, "the Python module amdsmi, a part of ROCm, is not here"
        case KeyError() | OSError():
            cause, reason = Cause.ABSENT, "there is no libamd_smi.so that can be loaded"
        case AttributeError():
            cause = Cause.MISMATCH
            reason = f"the module amdsmi and libamd_smi.so are of different releases: {exc}"
        case _:
            cause, reason = Cause.OTHER, f"cannot import amdsmi: {exc!r}"
    return Answer(step=Step.AMDSMI, reason=reason, cause=cause)


def _failed(exc: Any) -> Answer:
    code = getattr(exc, "err_code", None)
    return Answer(
        step=Step.AMDSMI,
        reason=_said(exc),
        cause=Cause.OTHER if code is None else _CAUSES.get(code, Cause.OTHER),
    )


def _said(exc: Any) -> str:
    """`AMDSMI_STATUS_NO_PERM - Permission Denied`."""
    return str(getattr(exc, "err_info", None) or exc)


def _look(amdsmi: Any, root: Path) -> Answer:
    handles = amdsmi.amdsmi_get_processor_handles()
    devices: list[Gpu] = []
    silent: list[Silent] = []
    notes: list[str] = []
    shut_away: list[Closed] = []
    for at, handle in enumerate(handles):
        told = Told(f"amdsmi's GPU {at}", notes, amdsmi.AmdSmiException, _fault)
        address = told.value("PCI address", amdsmi.amdsmi_get_gpu_device_bdf, handle)
        if address is None:
            silent.append(Silent(at=at, why=_said(told.errors[-1]) if told.errors else None))
            continue
        numbers = _numbers(amdsmi, handle, told)
        shut = _shut(numbers, root)
        if shut is not None:
            shut_away.append(shut)
            notes += not_used(address, shut)
        else:
            devices.append(_device(amdsmi, handle, address, numbers, told))
    shut = closed(root, "kfd")
    if devices and shut is not None:
        notes.append(f"{shut}: amdsmi can do without it, ROCm cannot")
    reason = counted(len(handles), shut_away)
    if not devices:
        cause = Cause.OTHER if silent else without_devices(shut_away)
        reason = f"{reason}; of none it tells where it is" if silent else reason
        return Answer(step=Step.AMDSMI, reason=reason, cause=cause, notes=tuple(notes))
    return Answer(
        step=Step.AMDSMI,
        reason=reason,
        devices=with_lost(
            _counted_by_hip(devices) if shut_away else devices,
            silent,
            ask_sysfs(root).devices,
            among_others=bool(shut_away),
        ),
        notes=tuple(notes),
    )


def _numbers(amdsmi: Any, handle: Any, told: Told) -> Any:
    """None of a release that does not tell them."""
    enumeration = getattr(amdsmi, "amdsmi_get_gpu_enumeration_info", None)
    return told.value("HIP number", enumeration, handle) if enumeration is not None else None


def _shut(numbers: Any, root: Path) -> Closed | None:
    """amdsmi tells of the whole machine's, also in a container that was given some."""
    minor = _part(numbers, "drm_render")
    return closed(root, f"dri/renderD{minor}") if minor is not None else None


def _counted_by_hip(devices: Sequence[Gpu]) -> list[Gpu]:
    """HIP counts only what it can open, in the order that it has for the whole machine."""
    if any(device.order is None for device in devices):
        return list(devices)
    ranked = sorted(devices, key=lambda device: device.order or 0)
    return [replace(device, order=ranked.index(device)) for device in devices]


def _fault(exc: Any) -> str | None:
    return None if getattr(exc, "err_code", None) == _NOT_SUPPORTED else _said(exc)


def _part(of: Any, key: str) -> Any:
    value = of.get(key) if isinstance(of, dict) else None
    return None if value in _NOT_TOLD else value


def _device(amdsmi: Any, handle: Any, address: str, numbers: Any, told: Told) -> Gpu:
    asic = told.value("kind", amdsmi.amdsmi_get_gpu_asic_info, handle)
    activity = told.value("utilisation", amdsmi.amdsmi_get_gpu_activity, handle)
    uuid = _part(numbers, "hip_uuid")
    version = _part(asic, "target_graphics_version")
    device = Gpu(
        vendor=Vendor.AMD,
        uuid=GpuUuid(uuid) if uuid is not None else None,
        pci=pci_address(address),
        name=_part(asic, "market_name") or AMD_GPU,
        architecture=gfx(version) if version is not None else None,
        utilization=percent(_part(activity, "gfx_activity")),
        order=_part(numbers, "hip_id"),
        processes=_processes(told.value("processes", amdsmi.amdsmi_get_gpu_process_list, handle)),
        unusable=None if asic is not None else "it does not tell what it is",
    )
    kinds = amdsmi.AmdSmiMemoryType
    own = _memory(amdsmi, handle, told, kinds.VRAM)
    shared = _memory(amdsmi, handle, told, kinds.GTT) if device.integrated else None
    return with_memory(device, own, shared)


def _memory(amdsmi: Any, handle: Any, told: Told, kind: Any) -> Memory | None:
    total = told.value("memory", amdsmi.amdsmi_get_gpu_memory_total, handle, kind)
    if not isinstance(total, int):
        return None
    used = told.value("used memory", amdsmi.amdsmi_get_gpu_memory_usage, handle, kind)
    return Memory(total_bytes=total, used_bytes=used if isinstance(used, int) else None)


def _processes(told: list[dict[str, Any]] | None) -> tuple[GpuProcess, ...] | None:
    """`mem` counts the machine's memory too; what it takes of the GPU's stands beside it."""
    if told is None:
        return None
    return tuple(
        GpuProcess(pid=process["pid"], memory_bytes=_part(process.get("memory_usage"), "vram_mem"))
        for process in told
    )
