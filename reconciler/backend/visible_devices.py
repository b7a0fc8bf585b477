"""The variables that show a process some GPUs and no others, as each vendor's runtime reads them
(PURE)."""

from collections.abc import Sequence

from reconciler.errors import Rejected
from reconciler.plan.gpus import Gpu


def by_uuid(devices: Sequence[Gpu], engine: str) -> dict[str, str]:
    """For CUDA: whole UUIDs, since NVML takes no abbreviation, and CUDA's own order is another."""
    uuids = [device.uuid for device in devices if device.uuid is not None]
    for device in devices:
        if device.uuid is None:
            raise Rejected(f"cannot give {device.name} to {engine}: its driver tells no UUID")
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def by_hip_number(devices: Sequence[Gpu], engine: str) -> dict[str, str]:
    """For HIP: its own numbers, in one variable; vLLM refuses UUIDs, and a second one that differs.
    amdsmi counts in another order (pytorch#160468)."""
    for device in devices:
        if device.order is None:
            raise Rejected(f"cannot give {device.name} to {engine}: its number in HIP is not known")
    return {"HIP_VISIBLE_DEVICES": ",".join(str(device.order) for device in devices)}
