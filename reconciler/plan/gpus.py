"""What a GPU is: its identity, its architecture and class, its memory, and who uses it."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from reconciler.plan.ids import GpuUuid

AMD_GPU = "AMD GPU"
"""What one is called that does not tell its name."""
NO_INSTANCES = "it is in MIG mode and has no instances"


class Vendor(StrEnum):
    NVIDIA = "nvidia"
    AMD = "amd"


class GpuClass(StrEnum):
    """What engines are chosen by (design §8). UNKNOWN: AMD's older chips, and ones we never met."""

    NVIDIA = "nvidia"
    CDNA = "amd-cdna"
    RDNA = "amd-rdna"
    UNKNOWN = "unknown"


# By name, never by prefix: gfx906 is a gfx9 and no CDNA, gfx1250 a gfx12 and no RDNA.
_CDNA = frozenset({"gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950", "gfx1250"})
_RDNA = frozenset(
    f"gfx{number}"
    for number in (*range(1010, 1014), *range(1030, 1038), *range(1100, 1104), *range(1150, 1154))
) | {"gfx1200", "gfx1201"}
_INTEGRATED = frozenset({"gfx902", "gfx909", "gfx90c", "gfx1033", "gfx1103"}) | {
    f"gfx{number}" for number in (*range(1035, 1038), *range(1150, 1154))
}
"""APUs: graphics inside a CPU. MI300A is one too, but it is what its node was bought for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process on a GPU. `pid`: in the machine's own pid namespace, which may not be ours.

    `memory_bytes`: None where the driver does not tell.
    """

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device that a model can be given: a GPU, a MIG instance, a partition of an MI300.

    `uuid`: None for those that have none (APUs, many consumer cards). `pci`: as `pci_address`
    writes it; a MIG instance has its GPU's, a partition its own function. `architecture`: compute
    capability (`9.0`) or `gfx942`. Memory and `utilization` (0–100): None where it is not told.
    `order`: NVML's or HIP's own number, which no mask changes. `unified`: it works in the machine's
    memory. `mig_of`: the GPU of a MIG instance; `slot` its place there. `processes`: None where
    they are not told. `unusable`: why no model can have it; None: it can. `index`: its number among
    those that can be used (`gpu_order`); None: it has none. `rank`: its place among the `cards` of
    its vendor, as Vulkan counts them; None for parts of a GPU.
    """

    vendor: Vendor
    uuid: GpuUuid | None
    pci: str | None
    name: str
    architecture: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    utilization: int | None = None
    order: int | None = None
    unified: bool = False
    mig_of: GpuUuid | None = None
    slot: int = 0
    processes: tuple[GpuProcess, ...] | None = None
    unusable: str | None = None
    index: int | None = None
    rank: int | None = None
    cards: int = 0

    @property
    def gpu_class(self) -> GpuClass:
        return gpu_class(self.vendor, self.architecture)

    @property
    def integrated(self) -> bool:
        return self.architecture in _INTEGRATED

    @property
    def is_lost(self) -> bool:
        return (self.unusable or "").startswith("lost")

    @property
    def is_nameless(self) -> bool:
        """Its driver tells that it is there, and not which."""
        return self.uuid is None and self.pci is None

    @property
    def identity(self) -> GpuUuid:
        """What it is claimed by: its UUID, else its PCI address."""
        return self.uuid or GpuUuid(self.pci or f"{self.vendor}:{self.order}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`used_bytes`: None where it is not told."""

    total_bytes: int
    used_bytes: int | None = None

    @property
    def free_bytes(self) -> int | None:
        return None if self.used_bytes is None else max(self.total_bytes - self.used_bytes, 0)


def with_memory(gpu: Gpu, own: Memory | None, shared: Memory | None) -> Gpu:
    """The GPU and its memory. An APU works in what the firmware set aside for it (`own`), or in the
    machine's (`shared`, the driver's GTT), whichever is more."""
    pools = [pool for pool in (own, shared if gpu.integrated else None) if pool is not None]
    memory = max(pools, key=lambda pool: pool.total_bytes, default=None)
    if memory is None:
        return gpu
    return replace(
        gpu,
        unified=gpu.integrated,
        memory_total_bytes=memory.total_bytes,
        memory_used_bytes=memory.used_bytes,
        memory_free_bytes=memory.free_bytes,
    )


def percent(told: int | None) -> int | None:
    """None for what is none: drivers say 4294967295 of what they do not know."""
    return told if told is not None and 0 <= told <= 100 else None


def gpu_class(vendor: Vendor, architecture: str | None) -> GpuClass:
    if vendor is Vendor.NVIDIA:
        return GpuClass.NVIDIA
    if architecture in _CDNA:
        return GpuClass.CDNA
    if architecture in _RDNA:
        return GpuClass.RDNA
    return GpuClass.UNKNOWN


def gfx(told: str) -> str:
    """`gfx942` of `gfx942:sramecc+:xnack-`."""
    return told.partition(":")[0].strip().lower()


def gfx_of_kfd(version: int) -> str:
    """The kernel's decimal: 90402 is gfx942, 90010 gfx90a, 110501 gfx1151."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


PCI_PATTERN = r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?"
"""Domain, bus, device, function. Without what regular expressions of JSON schemas do not have."""
_PCI = re.compile(PCI_PATTERN)


def pci_address(text: str) -> str | None:
    """One way to write it: `0000:c5:00.0`, of `00000000:C5:00.0` too. None: it is no address."""
    found = _PCI.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device = (int(found[part] or "0", 16) for part in (1, 2, 3))
    return f"{domain:04x}:{bus:02x}:{device:02x}.{int(found[4] or '0')}"


def one_spelling(gpu: str) -> str:
    """Of what `gpu_ids` may hold: an address as `pci_address` has it, a UUID in small letters."""
    return pci_address(gpu) or gpu.lower()
