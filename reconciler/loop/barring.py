"""Which of the models that have GPUs could not be started on them, whatever comes free."""

from reconciler.loop.books import Books
from reconciler.loop.gpus import Gpus
from reconciler.loop.observation import Looks, Seen, seen_of
from reconciler.plan.barred import is_barred
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import pool_of


def barred(gpus: Gpus, looks: Looks, seen: Seen, books: Books) -> frozenset[ModelName]:
    """Of those without a process: what runs holds its GPUs, whatever is wanted instead."""
    devices = gpus.roll.devices if gpus.roll is not None else ()
    totals = {
        pool_of(device): device.memory_total_bytes
        for device in devices
        if device.memory_total_bytes is not None and not device.unified
    }
    return frozenset(
        name
        for name, claim in gpus.claims.items()
        if claim.devices
        and name not in seen.views
        and is_barred(looks[name].desired, seen_of(name, seen, looks[name], books), totals)
    )
