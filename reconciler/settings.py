"""What the agent is told at its start: read once from argv and the environment, by `cli`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.backend.inventory import NamedEngine
from reconciler.cache.budget import Budget
from reconciler.manifest.policy import STRICT, Permissions
from reconciler.plan.ending import OnExit
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Peering
from reconciler.plan.stop_limit import DEFAULT_STOP_LIMIT, StopLimit
from reconciler.source.git_access import PUBLIC, GitAccess
from reconciler.source.kubernetes_access import NO_CLUSTER, KubernetesAccess
from reconciler.status import Supervision


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """Where model files come from. `location`: `s3://bucket[/base]`, a directory, or None.

    `variables`: those of the environment that name an S3 store, its keys and its CA, where they
    are set. `bytes_per_second`: what all fetches of the node may take together; None: as much as
    they can.
    """

    location: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    http_proxy: str = field(default="", repr=False)
    https_proxy: str = field(default="", repr=False)
    no_proxy: str = ""
    bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One agent's settings. Times in seconds.

    `manifest`: a path, the URL of a git repository, which `git` says how to reach, or a ConfigMap
    (`configmap://…`), of the API that `kubernetes` leads to.
    `git_interval`: between two looks at it. `git_webhook_secret_file`: what its host proves itself
    with when it tells of a push; None: it may not.
    `poll_interval`: backs up file events, which some file systems never send (design §5).
    `cache_budget`: of the disk, for model files; None: all that is free, but for a headroom.
    `engines`: builds beside the default ones, for models that name them.
    `ports`: below the kernel's ephemeral range, so that no outgoing connection takes one.
    `log_max_bytes`: a backend's log is rotated past it; one older file is kept.
    `environment`: the agent's own; backends are given a scrubbed copy.
    `max_body_bytes`: of an inference request. `queue_length`, `queue_seconds`: who waits for a
    model with `max_in_flight`. `heartbeat_seconds`: without a byte in a stream until a comment.
    `gpu_mode`: whether the GPUs that are seen are the node's, or a device plugin gave them.
    `permissions`: what manifests may ask of engines beyond the usual.
    `stop_limit`: of models that one revision may stop unasked, where the manifest writes none.
    `on_exit`: what becomes of backends when the agent is told to end. `supervision`: what the
    supervisor said of itself; None: there is none.
    `peers`: the other agents of the cluster; None: this one is alone. `cluster_token_file`: what
    agents prove themselves to each other with; None: nothing is agreed on.
    `rename_node`: the old name that the data folder remembers and that may be given up (R2).
    """

    manifest: str
    hub: HubSettings = HubSettings()
    node: NodeName | None = None
    host_name: str = "localhost"
    listen_host: str = "127.0.0.1"
    listen_port: int = 8000
    data_dir: Path
    models_dir: Path
    cache_budget: Budget | None = None
    llama_server: str | None = None
    vllm: str | None = None
    llama_cpp_python: str | None = None
    engines: tuple[NamedEngine, ...] = ()
    gpu_mode: GpuMode = GpuMode.NODE
    permissions: Permissions = STRICT
    poll_interval: float = 5.0
    git: GitAccess = PUBLIC
    git_interval: float = 30.0
    git_webhook_secret_file: Path | None = None
    kubernetes: KubernetesAccess = NO_CLUSTER
    max_parallel_loads: int = 2
    stop_limit: StopLimit = DEFAULT_STOP_LIMIT
    ports: range = range(18000, 19000)
    log_max_bytes: int = 50 * 1024 * 1024
    max_body_bytes: int = 64 * 1024 * 1024
    queue_length: int = 100
    queue_seconds: float = 30.0
    heartbeat_seconds: float = 15.0
    on_exit: OnExit = OnExit.AUTO
    supervision: Supervision | None = None
    peers: Peering | None = None
    cluster_token_file: Path | None = None
    rename_node: str | None = None
    pod_name: str | None = None
    pod_ip: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
