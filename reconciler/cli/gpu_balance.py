"""How full each GPU of a node is, and would be once a plan has come true (PURE).

What a model holds is taken for what it needs, by the spec that its agent wants.
"""

from collections.abc import Iterable, Mapping, Sequence

from reconciler.cli.changes import Running
from reconciler.cli.client import Json
from reconciler.plan.balance import Balance
from reconciler.plan.changes import STARTING, Change, Verb
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import Pool

_GOING = (Verb.STOP, Verb.RESTART, Verb.SURGE)


def balances(
    view: Json, running: Iterable[Running], changes: Sequence[Change]
) -> tuple[Balance, ...]:
    """By index, of those whose memory is told. `view`: the node as its agent tells of it."""
    there = {each.name: each for each in running if each.pid is not None}
    devices: list[Json] = view.get("gpu", {}).get("devices", [])
    return tuple(
        _balance(device, there, changes)
        for device in devices
        if device.get("memory_total_bytes") and device.get("memory_used_bytes") is not None
    )


def _balance(
    device: Json, there: Mapping[ModelName, Running], changes: Sequence[Change]
) -> Balance:
    gpu = Pool(device.get("uuid") or device["pci"])
    going = [
        there[change.model].needs[gpu].own_bytes
        for change in changes
        if change.verb in _GOING and change.model in there and gpu in there[change.model].needs
    ]
    coming = [
        change.needs[gpu] for change in changes if change.verb in STARTING and gpu in change.needs
    ]
    used: int = device["memory_used_bytes"]
    return Balance(
        gpu=gpu,
        index=device.get("index"),
        total_bytes=device["memory_total_bytes"],
        used_bytes=used,
        after_bytes=max(used - sum(going), 0) + sum(need.own_bytes for need in coming),
        complete=all(need.is_whole for need in coming),
    )
