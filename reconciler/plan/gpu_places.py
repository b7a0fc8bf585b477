"""Whether processes sit on the GPUs that they were given, by what drivers tell of pids.

A verdict needs a process of ours on a GPU that it was not given. That none is seen where it should
be says nothing: not every driver tells, and pids may be of another namespace.
"""

from collections.abc import Collection, Iterable

from reconciler.plan.gpu_claims import named
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.gpus import Gpu, GpuProcess, Vendor
from reconciler.plan.ids import GpuUuid

_CONTEXT_BYTES = 64 << 20
"""Less is no use of a GPU: ROCm opens each that it may see, and takes a little of its memory."""


def misplaced(pids: Collection[int], given: Collection[GpuUuid], roll: Roll) -> str | None:
    """On which GPUs one of these processes is without having been given them; None: on none."""
    wrong = [
        (device, pid)
        for device in roll.devices
        if device.identity not in given
        for pid in _users(device)
        if pid in pids
    ]
    if not wrong:
        return None
    found = " and ".join(f"pid {pid} is on {named(device)}" for device, pid in wrong)
    return f"{found}, and was given {_listed(roll, given)}"


def _users(device: Gpu) -> Iterable[int]:
    return (each.pid for each in device.processes or () if _uses(device, each))


def _uses(device: Gpu, process: GpuProcess) -> bool:
    if process.memory_bytes is None:  # NVIDIA lists none that does not
        return device.vendor is Vendor.NVIDIA
    return process.memory_bytes >= _CONTEXT_BYTES


def _listed(roll: Roll, given: Collection[GpuUuid]) -> str:
    if not given:
        return "no GPU"
    found = [roll.find(gpu) for gpu in given]
    return " and ".join(named(device) for device in found if device is not None) or "others"
