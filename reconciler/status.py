"""The one immutable status that a tick of the loop publishes (PURE).

The HTTP side turns it into routes, the cluster view and metrics, in the JSON shape of design §9.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.condition import Condition
from reconciler.plan.actions import Plan
from reconciler.plan.desired import Affinity, Elsewhere, ModelSpec, ModelType, Timeouts
from reconciler.plan.ending import OnExit
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.ids import FilesDigest, ModelName, NodeName, Nonce, Place, SpecHash
from reconciler.plan.memory import Needs
from reconciler.plan.observed import EffectKind
from reconciler.plan.phase import State

Json = dict[str, object]

JUST_STARTED = "has just started and does not know its models yet"
"""Of a node whose manifest was not read so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a loaded backend answers. Never published: it holds the backend's key.

    `metrics_path`: its own page of counters, in Prometheus text; None: it has none.
    """

    nonce: Nonce
    host: str
    port: int
    api_key: str | None = field(default=None, repr=False)
    metrics_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatus:
    """The instance that is coming, beside the one that serves. `pid`: of the process that is to
    take its place; None: there is none yet."""

    spec_hash: SpecHash
    state: State
    reason: str
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainingStatus:
    """A process beside that of the model's own state: it gets no new work, and ends. `since`: of
    its stop, RFC 3339, UTC; None: that has not begun. `loads`: it has never served."""

    nonce: Nonce
    pid: int
    spec_hash: SpecHash
    reason: str
    since: str | None = None
    loads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerPush:
    """What the hub holds instead of what is here. `digest`: what `digest:` would pin; None: the hub
    cannot tell, as its catalog is damaged.

    `reason`: what becomes of it.
    """

    digest: FilesDigest | None
    reason: str


class Doing(StrEnum):
    """`check`: files that look changed are read; `import`: the hub gets them from elsewhere."""

    FETCH = "fetch"
    CHECK = "check"
    IMPORT = "import"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the work on a model's files is. What was here before counts as done, not as rate.

    `bytes_per_second`: lately; None: not known yet. `seconds_left`: at that rate; None: not known,
    or nothing comes. `silent_seconds`: for how long nothing has come; None: bytes come.
    """

    doing: Doing
    done_bytes: int
    total_bytes: int
    bytes_per_second: float | None = None
    seconds_left: float | None = None
    silent_seconds: float | None = None


class RestartCause(StrEnum):
    """How the process before ended: a crash, a load that failed, our stop of one that did nothing
    any more, or for a change."""

    CRASHED = "crashed"
    HUNG = "hung"
    LOAD_FAILED = "load_failed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureNote:
    """One failure. `at`: RFC 3339, UTC. `during`: fetch, start, load, run or stop."""

    at: str
    during: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDetail:
    """What operators look up of one model, beside its state.

    `spec`, `timeouts` and `place` are None for one that only still runs. `argv`: of the process,
    without its secrets. `failures_in_a_row`: what the backoff counts; `permanent`: it is blocked.
    `warnings`: of how its process was started. `failures`: the last ones, oldest first.
    `restart_causes`: how often, by cause. `expected_load_seconds`: of the spec that is wanted, by
    what it has taken here; None: not known. `needs`: of memory, by the spec. `download_bytes`: of
    its files that are not here; None: not known.
    """

    enabled: bool = True
    priority: int = 0
    spec: ModelSpec | None = None
    timeouts: Timeouts | None = None
    place: Place | None = None
    passed_over: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    started_at: str | None = None
    loaded_at: str | None = None
    load_seconds: float | None = None
    expected_load_seconds: float | None = None
    restart_causes: tuple[tuple[str, int], ...] = ()
    failures_in_a_row: int = 0
    permanent: bool = False
    failures: tuple[FailureNote, ...] = ()
    needs: Needs = field(default_factory=dict)
    download_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The build that runs a model, or would. `name`: as an operator calls it; None: the default one
    of its backend. `version`: None: it tells none. `installed`: the version in its place by now;
    None: there is none, or it tells none. `drift`: how that differs from what runs; None: it does
    not."""

    name: str | None
    version: str | None
    installed: str | None = None
    drift: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A build on this node. `name` and `version`: as in `EngineStatus`. `detail`: where it is.
    `problem`: why it cannot be used, of one that an operator has named; None: it can be."""

    id: str
    name: str | None
    version: str | None = None
    detail: str | None = None
    problem: str | None = None


class DriftKind(StrEnum):
    """What came to be otherwise without anybody having asked for it. docs/drift.md says of each
    what is done."""

    PROCESS_ENDED = "ProcessEnded"
    LAUNCH_DIFFERS = "LaunchDiffers"
    FILES_CHANGED = "FilesChanged"
    GPU_STRANGER = "GpuStranger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """`model` None: of the node. `what` was found, and what was `done` about it: clauses. `since`:
    RFC 3339, UTC. `pid`, `size_bytes`: of a process that is not ours; None: not told."""

    kind: DriftKind
    model: ModelName | None
    what: str
    done: str
    since: str
    pid: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model that is selected for this node, or still runs here.

    `degraded`: why its last good spec serves or comes, and not the manifest's; None: it does not.
    `endpoint` is set while requests may be routed to it; `pid` while a process lives.
    `reason`: one sentence. `last_lines`: the end of the backend's log after a failure.
    `progress`: of a fetch under way, or of a newer push's. `digest`: of the model's own files;
    `revision`: of all of its prefix, what `digest:` would pin; `verified`: whether a catalog told
    their contents. These two are None for other files than the hub's, and where it is not known.
    """

    name: ModelName
    type: ModelType
    state: State
    reason: str
    aliases: tuple[str, ...] = ()
    backend: str | None = None
    backend_reason: str | None = None
    engine: EngineStatus | None = None
    gpu_ids: tuple[str, ...] = ()
    spec_hash: SpecHash | None = None
    digest: FilesDigest | None = None
    revision: FilesDigest | None = None
    verified: bool | None = None
    newer: NewerPush | None = None
    pid: int | None = None
    port: int | None = None
    restarts: int = 0
    target: TargetStatus | None = None
    draining: tuple[DrainingStatus, ...] = ()
    degraded: str | None = None
    endpoint: Endpoint | None = None
    max_in_flight: int | None = None
    """How many requests may be passed on at a time; None: any number."""
    affinity: Affinity = Affinity.NONE
    last_lines: tuple[str, ...] = ()
    log: str | None = None
    progress: Progress | None = None
    retry_at: str | None = None
    """When the next try is due: RFC 3339, UTC."""
    conditions: tuple[Condition, ...] = ()
    drift: tuple[Drift, ...] = ()
    detail: ModelDetail = ModelDetail()


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """`applied`: last revision taken whole; `attempted`: last one seen."""

    applied: str | None = None
    attempted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU that has a number here. What its driver does not tell is None; utilisation 0–100.

    `identity`: as models hold it: its UUID, else its PCI address. `problem`: why it is given to
    nobody; None: it can be.
    """

    index: int
    identity: str
    uuid: str | None
    pci: str | None
    name: str
    vendor: str
    gpu_class: str
    architecture: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    utilization: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """`restarts`: how often the supervisor has started a crashed agent anew. `crash`: how the one
    before this one ended; None: this is the first."""

    restarts: int = 0
    crash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """How this agent was told to live and end. `supervision`: None: it has no supervisor.
    `on_exit_problem`: why backends cannot be left, though they are to be; None: they can."""

    pid: int
    on_exit: OnExit
    on_exit_problem: str | None = None
    supervision: Supervision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All that one node says of itself. `version` grows with every change."""

    node: NodeName
    version: int = 0
    pod_name: str | None = None
    pod_ip: str | None = None
    agent_version: str = ""
    agent: AgentStatus | None = None
    revision: Revision = Revision()
    gpu_mode: GpuMode = GpuMode.NODE
    devices: tuple[Device, ...] = ()
    engines: tuple[Engine, ...] | None = None
    """None: they have not all said yet what they are."""
    models: tuple[ModelStatus, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    conditions: tuple[Condition, ...] = ()
    drift: tuple[Drift, ...] = ()
    """Of the node itself; each model has its own."""
    ready: bool = False
    """`/readyz`: latched once true (design §9)."""
    draining: bool = False
    """New work goes to peers; without any it is answered with 503."""
    closed: bool = False
    """While it drains: nothing new goes to peers either."""
    unknown_because: str | None = None
    """Why it is not known yet which models there are, with the node as subject; None: it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """An effect that is under way for a model. `since`: RFC 3339, UTC. `detail`: how far it is.
    `pid`: of the process that a stop ends."""

    model: ModelName
    kind: EffectKind
    since: str
    detail: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan of the newest tick, whose actions have been begun. Times: RFC 3339, UTC.

    `next_at`: when it changes by time alone; None: only an event changes it. `revision`: the
    manifest's that it was made from. `waits`: what holds up the node as a whole.
    """

    at: str
    revision: str | None
    plan: Plan
    waits: tuple[str, ...] = ()
    next_at: str | None = None
    under_way: tuple[UnderWay, ...] = ()
