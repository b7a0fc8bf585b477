"""NVIDIA's GPUs, as NVML tells of them (nvidia-ml-py, over the driver's libnvidia-ml.so.1)."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pynvml

from reconciler.observe.devices.told import Told
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import NO_INSTANCES, Gpu, GpuProcess, Vendor, pci_address, percent
from reconciler.plan.ids import GpuUuid

_CAUSES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Cause.ABSENT,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Cause.NO_DRIVER,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Cause.MISMATCH,
    pynvml.NVML_ERROR_NO_PERMISSION: Cause.NO_PERMISSION,
}
_NAME = "NVIDIA GPU"
_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
_SILENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
"""What this GPU, or this release of the driver, does not have; no fault."""


def ask_nvml() -> Answer:
    """Every GPU, in MIG mode every instance, that this process may see; NVML ends with it."""
    try:
        pynvml.nvmlInit()
        return _look()
    except pynvml.NVMLError as exc:
        return _failed(exc)


def _failed(exc: pynvml.NVMLError) -> Answer:
    reason = str(exc)
    if exc.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        reason = "there is no libnvidia-ml.so.1 that can be loaded"
    return Answer(step=Step.NVML, reason=reason, cause=_CAUSES.get(exc.value, Cause.OTHER))


def _look() -> Answer:
    count = pynvml.nvmlDeviceGetCount()
    notes: list[str] = []
    driver = _told("NVML", notes).value("driver", pynvml.nvmlSystemGetDriverVersion)
    devices: list[Gpu] = []
    for order in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(order)
        except pynvml.NVMLError as exc:
            if exc.value == pynvml.NVML_ERROR_NO_PERMISSION:  # others' GPUs look so in a container
                notes.append(f"NVML's GPU {order} cannot be used: {exc}")
            else:
                devices.append(_broken(order, exc))
            continue
        devices.extend(_devices(handle, order, notes))
    return Answer(
        step=Step.NVML,
        reason=f"{count} GPU{'' if count == 1 else 's'}, driver {driver or 'unknown'}",
        devices=tuple(devices),
        cause=None if devices else Cause.NO_DEVICE,
        notes=tuple(notes),
        driver=driver,
    )


def _broken(order: int, exc: pynvml.NVMLError) -> Gpu:
    """What it is called is not told."""
    why = f"lost: {exc}" if exc.value in _GONE else f"its driver says: {exc}"
    return Gpu(vendor=Vendor.NVIDIA, uuid=None, pci=None, name=_NAME, order=order, unusable=why)


def _told(of: str, notes: list[str]) -> Told:
    return Told(of, notes, pynvml.NVMLError, _fault)


def _fault(exc: pynvml.NVMLError) -> str | None:
    return None if exc.value in (*_GONE, *_SILENT) else str(exc)


def _devices(handle: Any, order: int, notes: list[str]) -> list[Gpu]:
    """The GPU; in MIG mode its instances, and itself only where it has none."""
    told = _told(f"NVML's GPU {order}", notes)
    card = _device(handle, order, told)
    mode = told.value("MIG mode", pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE or card["unusable"]:
        return [Gpu(**card)]
    instances = []
    for slot, instance in _mig_handles(handle, told):
        values = _device(instance, order, _told(f"MIG instance {slot} of {told.of}", notes))
        values |= {
            "pci": card["pci"],
            "architecture": card["architecture"],
            "unified": False,
            "mig_of": card["uuid"],
            "slot": slot,
        }
        instances.append(Gpu(**values))
    return instances or [Gpu(**card | {"unusable": NO_INSTANCES})]


def _mig_handles(handle: Any, told: Told) -> Iterator[tuple[int, Any]]:
    """Slots have gaps."""
    count = told.value("number of MIG instances", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    for slot in range(count or 0):
        with contextlib.suppress(pynvml.NVMLError):
            yield slot, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)


def _device(handle: Any, order: int, told: Told) -> dict[str, Any]:
    uuid = told.value("UUID", pynvml.nvmlDeviceGetUUID, handle)
    pci = told.value("PCI address", pynvml.nvmlDeviceGetPciInfo, handle)
    capability = told.value("compute capability", pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = told.value("memory", pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = told.value("utilisation", pynvml.nvmlDeviceGetUtilizationRates, handle)
    name = told.value("name", pynvml.nvmlDeviceGetName, handle)
    processes = told.value("processes", pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    lost = next((str(exc) for exc in told.errors if exc.value in _GONE), None)
    return {
        "vendor": Vendor.NVIDIA,
        "uuid": GpuUuid(uuid) if uuid else None,
        "pci": pci_address(pci.busId) if pci is not None else None,
        "name": name or _NAME,
        "architecture": f"{capability[0]}.{capability[1]}" if capability is not None else None,
        "memory_total_bytes": memory.total if memory is not None else None,
        "memory_used_bytes": memory.used if memory is not None else None,
        "memory_free_bytes": memory.free if memory is not None else None,
        "utilization": percent(rates.gpu) if rates is not None else None,
        "order": order,
        "unified": memory is None and lost is None,  # GB10: there is no memory of its own
        "processes": _processes(processes),
        "unusable": f"lost: {lost}" if lost else None,
    }


def _processes(told: list[Any] | None) -> tuple[GpuProcess, ...] | None:
    if told is None:
        return None
    return tuple(
        GpuProcess(pid=process.pid, memory_bytes=process.usedGpuMemory) for process in told
    )
