"""The share of a GPU's memory that a model may take, as it is written and as a number."""

import re
from collections.abc import Iterable

from reconciler.plan.gpus import Gpu

SIZE = r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]i?B)"
_UNITS = {
    f"{letter}{'i' if base == 1024 else ''}B": base**power
    for base in (1000, 1024)
    for power, letter in enumerate("KMGT", start=1)
}
_ROUNDING = 1e-9


def size_bytes(text: str) -> int | None:
    """`20GiB` and `500GB` in bytes; None for what is no size."""
    found = re.fullmatch(SIZE, text)
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def share_of(written: str | None, devices: Iterable[Gpu]) -> float | None:
    """`gpu_memory` as a part of each of these devices, the largest where they differ.

    None: the whole, where nothing is written, or where a size is and the memory is not told.
    """
    if written is None:
        return None
    wanted = size_bytes(written)
    if wanted is None:
        return float(written)
    totals = [device.memory_total_bytes for device in devices]
    if not totals or not all(totals):
        return None
    return max(wanted / total for total in totals if total)


def fit_together(shares: Iterable[float | None]) -> bool:
    """Whether all of these can be on one GPU; None is the whole of it."""
    taken = list(shares)
    if len(taken) < 2:
        return True
    known = [share for share in taken if share is not None]
    return len(known) == len(taken) and sum(known) <= 1 + _ROUNDING
