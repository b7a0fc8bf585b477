"""AMD's GPUs that are lost beside sound ones: amdsmi's list and the kernel's (KFD) are compared.

A lost one is missing in one of the two, or amdsmi tells nothing of it. Partitions count as their
card, which the two need not number alike. An APU is missed by nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.plan.gpus import AMD_GPU, Gpu, Vendor

_NOT_AMDSMI = "lost: the kernel's driver lists it, and amdsmi does not"
_NOT_KFD = "lost: amdsmi lists it, and the kernel's driver for computing (KFD) does not"


@dataclass(frozen=True, slots=True)
class Silent:
    """What amdsmi lists, and of which it does not tell where it is. `at`: its place in the list;
    `why`: None: not told."""

    at: int
    why: str | None

    @property
    def said(self) -> str:
        return f"lost: amdsmi does not tell where it is: {self.why or 'an address that is none'}"

    @property
    def nameless(self) -> Gpu:
        return Gpu(
            vendor=Vendor.AMD,
            uuid=None,
            pci=None,
            name=AMD_GPU,
            order=self.at,
            unusable=self.said,
        )


def with_lost(
    devices: Sequence[Gpu],
    silent: Sequence[Silent],
    by_kernel: Sequence[Gpu],
    *,
    among_others: bool,
) -> tuple[Gpu, ...]:
    """`devices`: amdsmi's, one at least. `by_kernel`: none where the kernel does not tell.

    `among_others`: others' GPUs are listed too, and what is silent may be one of them.
    """
    by_kernel = [gpu for gpu in by_kernel if not gpu.integrated]
    known = {_card(device) for device in devices}
    missing = [gpu for gpu in by_kernel if _card(gpu) not in known]
    reasons = [_NOT_AMDSMI] * len(missing)
    nameless = [] if among_others else [each.nameless for each in silent]
    if len(silent) == len(missing):  # they are the same
        reasons, nameless = [each.said for each in silent], []
    there = {_card(gpu) for gpu in by_kernel}
    return (
        *(replace(gpu, unusable=_NOT_KFD) if _is_gone(gpu, there) else gpu for gpu in devices),
        *(_lost(gpu, why) for gpu, why in zip(missing, reasons, strict=True)),
        *nameless,
    )


def _is_gone(gpu: Gpu, there: set[str]) -> bool:
    """HIP once gave it a number, and now the kernel has others only."""
    counts = gpu.order is not None and gpu.unusable is None and not gpu.integrated
    return bool(there) and counts and _card(gpu) not in there


def _lost(gpu: Gpu, why: str) -> Gpu:
    return replace(gpu, order=None, utilization=None, processes=None, unusable=why)


def _card(gpu: Gpu) -> str:
    return (gpu.pci or "").partition(".")[0]
