"""Which of the models that have GPUs could not be started on them, whatever comes free."""

from collections.abc import Mapping

from reconciler.loop.books import Books
from reconciler.loop.gpus import Gpus
from reconciler.loop.observation import Looks, Seen, seen_of
from reconciler.plan.barred import is_barred
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import Pool, pool_of


def barred(gpus: Gpus, looks: Looks, seen: Seen, books: Books) -> frozenset[ModelName]:
    """Of those without a process: what runs holds its GPUs, whatever is wanted instead."""
    totals = totals_of(gpus.roll)
    return frozenset(
        name
        for name, claim in gpus.claims.items()
        if claim.devices
        and name not in seen.views
        and is_barred(looks[name].desired, seen_of(name, seen, looks[name], books), totals)
    )


def totals_of(roll: Roll | None) -> Mapping[Pool, int]:
    """All that each GPU has of memory, where it is told."""
    return {
        pool_of(device): device.memory_total_bytes
        for device in (roll.devices if roll is not None else ())
        if device.memory_total_bytes is not None and not device.unified
    }
