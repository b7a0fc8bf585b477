"""What another agent says of itself, read leniently: it may be of another release (PURE).

Unknown fields are passed over, missing and unreadable ones have their defaults, and an unreadable
model loses only itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from reconciler.errors import Transient
from reconciler.plan.desired import Affinity, ModelType
from reconciler.plan.ids import ModelName, NodeName, SpecHash
from reconciler.plan.phase import State
from reconciler.proxy import json_text
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.peer import PeerModel

_API = 1
_MOST = 1_000_000_000

Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Slots = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
T = TypeVar("T", bound=msgspec.Struct)


class Unreadable(Transient):
    """The answer is none of an agent. The message: a clause, with the agent as its subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A whole server object. `document`: as JSON that certainly is some. `version`, `agent_id`:
    None: it is of a release that cannot be waited for. `silent`: its loop. `applied`: the revision
    of its manifest. `unread`: how many entries of models were none."""

    document: bytes
    node: NodeName
    version: int | None = None
    agent_id: str | None = None
    pod_name: str | None = None
    pod_ip: str | None = None
    draining: bool = False
    silent: bool = False
    applied: str | None = None
    gpu_free_bytes: int | None = None
    models: Mapping[ModelName, PeerModel] = field(default_factory=dict)
    loads: Mapping[ModelName, ModelLoad] = field(default_factory=dict)
    unread: int = 0


class Memory(Protocol):
    """As `status.Device`."""

    @property
    def memory_free_bytes(self) -> int | None: ...
    @property
    def problem(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """All but its figures is as it was told before. `moment`: `now`, `as_of` and `loop` of it."""

    loads: Mapping[ModelName, ModelLoad]
    moment: Mapping[str, object]


class _Loop(msgspec.Struct):
    silent: bool = False


class _Revision(msgspec.Struct):
    applied: str | None = None


class _Device(msgspec.Struct):
    memory_free_bytes: int | None = None
    problem: str | None = None


class _Gpu(msgspec.Struct):
    devices: list[_Device] = []


class _Server(msgspec.Struct):
    node: str
    version: int | None = None
    agent_id: str | None = None
    pod_name: str | None = None
    pod_ip: str | None = None
    draining: bool = False
    loop: _Loop = msgspec.field(default_factory=_Loop)
    revision: _Revision = msgspec.field(default_factory=_Revision)
    gpu: _Gpu = msgspec.field(default_factory=_Gpu)
    models: list[Any] = []
    loaded_models: list[Any] = []


class _Load(msgspec.Struct):
    in_flight: Count = 0
    waiting: Count = 0
    queued: Count | None = None
    kv_usage: float | None = None


class _Model(msgspec.Struct):
    name: str
    model_type: ModelType
    state: State = State.PENDING
    reason: str = ""
    aliases: list[str] = []
    enabled: bool = True
    max_in_flight: Slots | None = None
    affinity: Affinity = Affinity.NONE
    retry_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    spec_hash: str | None = None
    in_flight: Count = 0
    load: _Load | None = None


def read(body: bytes) -> Told | Unchanged:
    """Raises Unreadable."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise Unreadable("is not an xgen-model agent: its answer is not JSON") from exc
    if not isinstance(value, dict):
        raise Unreadable("is not an xgen-model agent: its answer is not an object")
    if (api := value.get("api", _API)) != _API:
        raise Unreadable(f"speaks another API of the cluster ({str(api)[:20]}) than this node")
    if value.get("unchanged") is True:
        moment = {key: value[key] for key in ("now", "as_of", "loop") if key in value}
        return Unchanged(loads=read_loads(value.get("load")), moment=moment)
    return _told(value)


def read_loads(given: object) -> dict[ModelName, ModelLoad]:
    """Of those that are not idle."""
    found = {}
    for name, figures in given.items() if isinstance(given, dict) else ():
        load = _lenient(figures, _Load)
        if load is not None:
            found[ModelName(str(name))] = _load(load)
    return found


def _told(value: dict[str, Any]) -> Told:
    server = _lenient(value, _Server)
    if server is None or not _is_name(server.node):
        raise Unreadable("is not an xgen-model agent: its answer names no node")
    loaded = (each.get("name") for each in server.loaded_models if isinstance(each, dict))
    serving = {name for name in loaded if isinstance(name, str)}
    models, loads, unread = {}, {}, 0
    for entry in server.models:
        model = _lenient(entry, _Model)
        if model is None or not _is_name(model.name):
            unread += 1
            continue
        name = ModelName(model.name)
        models[name] = _model(model, serves=name in serving)
        load = _load(model.load) if model.load else ModelLoad(in_flight=model.in_flight)
        if load != IDLE:
            loads[name] = load
    return Told(
        document=json_text.encode(value),
        node=NodeName(server.node),
        version=server.version,
        agent_id=server.agent_id,
        pod_name=server.pod_name,
        pod_ip=server.pod_ip,
        draining=server.draining,
        silent=server.loop.silent,
        applied=server.revision.applied,
        gpu_free_bytes=free_bytes(server.gpu.devices),
        models=models,
        loads=loads,
        unread=unread,
    )


def _is_name(text: str) -> bool:
    """It may stand in a header."""
    return text != "" and text.isascii() and text.isprintable()


def _model(model: _Model, *, serves: bool) -> PeerModel:
    return PeerModel(
        name=ModelName(model.name),
        type=model.model_type,
        state=model.state,
        reason=model.reason,
        aliases=tuple(model.aliases),
        enabled=model.enabled,
        serves=serves,
        max_in_flight=model.max_in_flight,
        affinity=model.affinity,
        retry_at=model.retry_at.isoformat() if model.retry_at is not None else None,
        spec_hash=SpecHash(model.spec_hash) if model.spec_hash is not None else None,
    )


def _load(load: _Load) -> ModelLoad:
    return ModelLoad(
        in_flight=load.in_flight,
        waiting=load.waiting,
        queued=load.queued,
        kv_usage=load.kv_usage,
    )


def free_bytes(devices: Iterable[Memory]) -> int | None:
    """Of all GPUs together that can be used. None: not known of any."""
    free = [
        device.memory_free_bytes
        for device in devices
        if device.problem is None and device.memory_free_bytes is not None
    ]
    return sum(free) if free else None


def _lenient(value: object, shape: type[T]) -> T | None:
    """What can be read of it. None: it is no object, or lacks what it must have."""
    try:
        return msgspec.convert(value, type=shape)
    except msgspec.ValidationError:
        pass
    if not isinstance(value, dict):
        return None
    kept = {}
    for each in msgspec.structs.fields(shape):
        if each.encode_name in value:
            try:
                kept[each.name] = msgspec.convert(value[each.encode_name], type=each.type)
            except msgspec.ValidationError:
                if each.required:
                    return None
        elif each.required:
            return None
    return shape(**kept)
