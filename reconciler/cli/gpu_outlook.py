"""Which GPUs the models of a manifest would get on a node, by what its agent tells (PURE)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.cli.changes import Running, share_told
from reconciler.cli.client import Json
from reconciler.plan.desired import Desired
from reconciler.plan.gpu_claims import Holding, claims
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.gpus import Gpu, Vendor
from reconciler.plan.ids import GpuUuid, ModelName, SpecHash
from reconciler.plan.phase import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """`desired`: with each model's devices. `refusals`: of those that get none."""

    desired: Desired
    refusals: Mapping[ModelName, str]


def given(desired: Desired, view: Json, running: Sequence[Running]) -> Given:
    """`view`: the node as its agent tells of it."""
    roll = roll_of(view)
    held = {
        each.name: (_holding(each, each.spec_hash, roll),)
        for each in running
        if each.pid is not None and each.spec_hash is not None
    }
    made = claims(desired.models, roll, held)
    models = [(model, made.get(model.name)) for model in desired.models]
    return Given(
        desired=replace(
            desired,
            models=tuple(claim.put_into(model) if claim else model for model, claim in models),
        ),
        refusals={name: claim.refusal for name, claim in made.items() if claim.refusal is not None},
    )


def _holding(now: Running, spec_hash: SpecHash, roll: Roll) -> Holding:
    devices = [device for gpu in now.gpus if (device := roll.find(gpu)) is not None]
    return Holding(
        spec_hash=spec_hash,
        gpus=now.gpus,
        share=share_told(now, devices),
        serves=now.state is State.LOADED,
    )


def roll_of(view: Json) -> Roll:
    amiss = [
        condition
        for condition in view.get("conditions", ())
        if condition["type"] == "DevicesKnown" and condition["status"] == "False"
    ]
    gpu = view.get("gpu", {})
    devices = tuple(map(_device, gpu.get("devices", ())))
    return Roll(
        devices=devices,
        told=("its agent tells of none",),
        notes=tuple(str(condition["message"]) for condition in amiss),
        failed=any(condition["reason"] == "DriverSilent" for condition in amiss),
        mode=GpuMode.PLUGIN if gpu.get("mode") == GpuMode.PLUGIN else GpuMode.NODE,
    )


def _device(told: Json) -> Gpu:
    uuid = told.get("uuid")
    return Gpu(
        vendor=Vendor.NVIDIA if told.get("class") == Vendor.NVIDIA else Vendor.AMD,
        uuid=GpuUuid(uuid) if uuid is not None else None,
        pci=told.get("pci"),
        name=str(told.get("name")),
        architecture=told.get("architecture"),
        memory_total_bytes=told.get("memory_total_bytes"),
        unusable=told.get("problem"),
        index=told.get("index"),
    )
