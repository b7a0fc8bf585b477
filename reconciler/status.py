"""The one immutable status that a tick of the loop publishes (PURE).

The HTTP side turns it into routes, the cluster view and metrics, in the JSON shape of design §9.
"""

from dataclasses import dataclass, field

from reconciler.plan.desired import Elsewhere, ModelType
from reconciler.plan.ids import FilesDigest, ModelName, NodeName, Nonce, SpecHash
from reconciler.plan.phase import State

Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a loaded backend answers. Never published: it holds the backend's key."""

    nonce: Nonce
    host: str
    port: int
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """The instance that is coming, beside the one that serves."""

    spec_hash: SpecHash
    state: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model that is selected for this node, or still runs here.

    `endpoint` is set while requests may be routed to it; `pid` while a process lives.
    `reason`: one sentence. `last_lines`: the end of the backend's log after a failure.
    `progress`: bytes done and total of a fetch under way.
    """

    name: ModelName
    type: ModelType
    state: State
    reason: str
    aliases: tuple[str, ...] = ()
    backend: str | None = None
    backend_reason: str | None = None
    gpu_ids: tuple[str, ...] = ()
    spec_hash: SpecHash | None = None
    digest: FilesDigest | None = None
    pid: int | None = None
    port: int | None = None
    restarts: int = 0
    target: TargetStatus | None = None
    endpoint: Endpoint | None = None
    last_lines: tuple[str, ...] = ()
    log: str | None = None
    progress: tuple[int, int] | None = None
    retry_at: str | None = None
    """When the next try is due: RFC 3339, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A fact about the node, in the manner of Kubernetes conditions. `since`: RFC 3339, UTC.

    Types: `SourceReady`, `ManifestValid`, `Reconciling`, `Suspended`, `Draining`, `HubReady`.
    `status` is "True", "False" or "Unknown"; `reason` is one CamelCase word.
    """

    type: str
    status: str
    reason: str
    message: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """`applied`: last revision taken whole; `attempted`: last one seen."""

    applied: str | None = None
    attempted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU (none are detected yet; the shape is final). Memory in bytes, utilisation 0–100."""

    index: int
    uuid: str
    name: str
    vendor: str
    memory_total_bytes: int
    memory_free_bytes: int
    utilization: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All that one node says of itself. `version` grows with every change."""

    node: NodeName
    version: int = 0
    pod_name: str | None = None
    pod_ip: str | None = None
    agent_version: str = ""
    revision: Revision = Revision()
    devices: tuple[Device, ...] = ()
    models: tuple[ModelStatus, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    conditions: tuple[Condition, ...] = ()
    ready: bool = False
    """`/readyz`: latched once true (design §9)."""
    draining: bool = False
    """New work is answered with 503."""
