"""How a backend is started and asked, as values: adapters return them, nothing runs here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.backend.inventory import Build
from reconciler.plan.checks import Check
from reconciler.plan.desired import ModelType


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How to tell that a backend serves: health, then its served name, then one real answer.

    Paths are on the backend. `answer_path` and `answer_body` are the one real request: JSON, or,
    with an `answer_file`, a form of these fields and that file.
    """

    health_path: str
    models_path: str
    served_name: str
    answer_path: str
    answer_body: Mapping[str, object]
    type: ModelType
    answer_file: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Where the engine counts its own work, in Prometheus text, and what it calls its counts.

    None: it has no such page, or no such count. `prompt_tokens` and `generated_tokens` count from
    the start of the process, as do `steps`, passes through the model; `running`, `waiting`:
    requests; `kv_usage`: 0 to 1. `computes_apart`: the first process only answers HTTP.
    """

    metrics_path: str | None = None
    prompt_tokens: str | None = None
    generated_tokens: str | None = None
    steps: str | None = None
    running: str | None = None
    waiting: str | None = None
    kv_usage: str | None = None
    computes_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything that a spawn needs. `env` is the whole environment of the child, but for what the
    spawner adds. `checks`: with absolute paths. `socket_variables`: those that tell the engine
    where its sockets go. `gpu_share`: of each of its GPUs; None: the whole. `build`: as it was at
    the start; None: an adapter's own launch, which knows of none."""

    backend: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    host: str
    port: int
    api_key: str | None = field(default=None, repr=False)
    probe: Probe
    counters: Counters = Counters()
    warnings: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    socket_variables: tuple[str, ...] = ()
    gpu_share: float | None = None
    build: Build | None = None
