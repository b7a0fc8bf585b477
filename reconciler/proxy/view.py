"""The status as JSON: the cluster view of design §9 (PURE).

Fields after `target` in a model, and after `conditions` in a server, are additions within `api: 1`.
"""

from dataclasses import asdict
from typing import Protocol

from reconciler.condition import Condition
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.ids import ModelName, Nonce
from reconciler.proxy.as_of import honest, moment
from reconciler.pulse import Beat
from reconciler.status import Device, Engine, Json, ModelStatus, Status


class InFlight(Protocol):
    """How many requests are worked on: by all processes of a model, and by one process."""

    def of_model(self, model: ModelName) -> int: ...
    def in_flight(self, nonce: Nonce) -> int: ...


def server(status: Status, in_flight: InFlight, beat: Beat) -> Json:
    status = honest(status, beat)
    models = sorted(status.models, key=lambda model: model.name)
    return {
        "node": status.node,
        "pod_name": status.pod_name,
        "pod_ip": status.pod_ip,
        "reachable": True,
        "revision": {"applied": status.revision.applied, "attempted": status.revision.attempted},
        "gpu": _gpu(status.devices, status.gpu_mode),
        "models": [one_model(model, in_flight) for model in models],
        "loaded_models": [one_model(model, in_flight) for model in models if model.endpoint],
        "conditions": [_condition(condition) for condition in status.conditions],
        "ready": status.ready,
        "draining": status.draining,
        "version": status.version,
        "agent_version": status.agent_version,
        "elsewhere": [{"name": other.name, "reason": other.reason} for other in status.elsewhere],
        "engines": _engines(status.engines),
        "agent": asdict(status.agent) if status.agent else None,
        "unknown_because": status.unknown_because,
        "drift": [asdict(each) for each in status.drift],
        **moment(beat),
    }


def one_model(model: ModelStatus, in_flight: InFlight) -> Json:
    """Never the endpoint: it holds the backend's key."""
    return {
        "name": model.name,
        "aliases": model.aliases,
        "model_type": model.type,
        "backend": model.backend,
        "state": model.state,
        "reason": model.reason,
        "gpu_ids": model.gpu_ids,
        "in_flight": in_flight.of_model(model.name),
        "spec_hash": model.spec_hash,
        "digest": model.digest,
        "pid": model.pid,
        "target": _target(model),
        "backend_reason": model.backend_reason,
        "port": model.port,
        "restarts": model.restarts,
        "retry_at": model.retry_at,
        "progress": _progress(model),
        "last_lines": model.last_lines,
        "log": model.log,
        "verified": model.verified,
        "prefix_digest": model.revision,
        "newer": _newer(model),
        "engine": _engine(model),
        "degraded": model.degraded,
        "warnings": model.detail.warnings,
        "enabled": model.detail.enabled,
        "max_in_flight": model.max_in_flight,
        "affinity": model.affinity,
        "draining": [
            {
                "pid": each.pid,
                "spec_hash": each.spec_hash,
                "in_flight": in_flight.in_flight(each.nonce),
                "since": each.since,
                "reason": each.reason,
                "loads": each.loads,
            }
            for each in model.draining
        ],
        "conditions": [_condition(condition) for condition in model.conditions],
        "drift": [asdict(each) for each in model.drift],
    }


def _engines(engines: tuple[Engine, ...] | None) -> list[Json] | None:
    return None if engines is None else [asdict(engine) for engine in engines]


def _engine(model: ModelStatus) -> Json | None:
    engine = model.engine
    if engine is None:
        return None
    return {  # `asdict` of 1,000 of them would be half of the whole view's time
        "name": engine.name,
        "version": engine.version,
        "installed": engine.installed,
        "drift": engine.drift,
    }


def _target(model: ModelStatus) -> Json | None:
    target = model.target
    if target is None:
        return None
    return {
        "spec_hash": target.spec_hash,
        "state": target.state,
        "reason": target.reason,
        "pid": target.pid,
    }


def _newer(model: ModelStatus) -> Json | None:
    if model.newer is None:
        return None
    return {"digest": model.newer.digest, "reason": model.newer.reason}


def _progress(model: ModelStatus) -> Json | None:
    progress = model.progress
    if progress is None:
        return None
    return {
        "done_bytes": progress.done_bytes,
        "total_bytes": progress.total_bytes,
        "doing": progress.doing,
        "bytes_per_second": progress.bytes_per_second,
        "seconds_left": progress.seconds_left,
        "silent_seconds": progress.silent_seconds,
    }


def _gpu(devices: tuple[Device, ...], mode: GpuMode) -> Json:
    """`count`: of those that models can be given. `mode`: whose they are."""
    usable = [device for device in devices if device.problem is None]
    vendors = {device.vendor for device in usable}
    kind = "cpu" if not vendors else vendors.pop() if len(vendors) == 1 else "mixed"
    listed = [_device(device) for device in devices]
    return {"type": kind, "count": len(usable), "mode": mode, "devices": listed}


def _device(device: Device) -> Json:
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "memory_total_bytes": device.memory_total_bytes,
        "memory_free_bytes": device.memory_free_bytes,
        "utilization": device.utilization,
        "memory_used_bytes": device.memory_used_bytes,
        "pci": device.pci,
        "class": device.gpu_class,
        "architecture": device.architecture,
        "problem": device.problem,
    }


def _condition(condition: Condition) -> Json:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "since": condition.since,
        "observed_revision": condition.observed_revision,
    }
