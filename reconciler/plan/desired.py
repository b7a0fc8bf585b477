"""The desired state of one node, as values: what `manifest` produces and the planner reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.plan.checks import Check
from reconciler.plan.ids import GpuUuid, ModelName, NodeName, Place, SpecHash
from reconciler.plan.maintenance import Window
from reconciler.plan.stop_limit import StopLimit
from reconciler.plan.suspension import Suspension

_NAMED = 10
_SHOWN = 12

_Scalar = str | int | float | bool | None
JsonValue = _Scalar | list["JsonValue"] | dict[str, "JsonValue"]


class ModelType(StrEnum):
    LLM = "llm"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    TRANSCRIPTION = "transcription"


class Format(StrEnum):
    AUTO = "auto"
    SAFETENSORS = "safetensors"
    GGUF = "gguf"


class Refresh(StrEnum):
    """What becomes of a newer push to a model's prefix: it is told, or taken up by itself."""

    NEVER = "never"
    AUTO = "auto"


class Affinity(StrEnum):
    """What draws a model's requests to one of its replicas: SESSION: that of the session's earlier
    ones; PREFIX: that of those whose prompts begin alike."""

    NONE = "none"
    SESSION = "session"
    PREFIX = "prefix"


class Strategy(StrEnum):
    """How a process gives way to its successor. AUTO: a surge where there is room for both."""

    AUTO = "auto"
    RECREATE = "recreate"
    SURGE = "surge"


class OnFailure(StrEnum):
    """What becomes of a model whose new spec cannot start: the last good one comes back, it stays
    failed and is tried again, or nothing runs of it until something changes."""

    REVERT = "revert"
    KEEP = "keep"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """A value that stands outside the manifest. Exactly one of the two is set."""

    from_env: str | None = None
    from_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What reaches the backend's process; all but `digest`, `skip_memory_check` and `check_files`
    goes into the spec hash.

    `check_files`: what checks need of the model's folder. `gpus`: how many; 0 means CPU, None the
    node's default. `gpu_ids`: as written. `backend` is "auto" or an id of design §8. `extra_args`
    are already merged with the defaults.
    """

    source: str
    file: str | None = None
    digest: str | None = None
    type: ModelType = ModelType.LLM
    format: Format = Format.AUTO
    backend: str = "auto"
    engine: str | None = None
    gpus: int | None = None
    gpu_ids: tuple[str, ...] = ()
    gpu_memory: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int = 1
    extra_args: Mapping[str, JsonValue] = field(default_factory=dict)
    env: Mapping[str, str | SecretRef] = field(default_factory=dict)
    skip_memory_check: bool = False
    check_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """In seconds. `download` None: no limit. Changing one restarts nothing."""

    download: float | None = None
    ready: float = 1800.0
    first_answer: float = 300.0
    stall: float = 900.0
    drain: float = 60.0
    stop: float = 15.0
    kill: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredModel:
    """One model that this node has to run (or, when not `enabled`, to keep stopped)."""

    name: ModelName
    spec: ModelSpec
    spec_hash: SpecHash
    place: Place
    flag_places: Mapping[str, Place] = field(default_factory=dict)
    """Where its flags and variables stand, a default's where that is: by `extra_args.NAME` and
    `env.NAME`, those of its fallback by `fallback.…`."""
    enabled: bool = True
    refresh: Refresh = Refresh.NEVER
    strategy: Strategy = Strategy.AUTO
    keep_last_good: bool = True
    """False: what serves is given up where its files leave no room for the new ones, and nothing
    comes back."""
    on_failure: OnFailure = OnFailure.REVERT
    aliases: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    checks: tuple[Check, ...] = ()
    """In their order; those of a process are as they were at its start."""
    priority: int = 0
    max_in_flight: int | None = None
    """How many requests may be passed on at a time; None: any number."""
    affinity: Affinity = Affinity.NONE
    gpus: tuple[GpuUuid, ...] = ()
    """Resolved devices; empty on CPU."""
    gpus_to_spare: bool = False
    """They are others than its process holds, for a surge; those would do too."""
    gpu_share: float | None = None
    """Of the memory of each of them; None: the whole."""
    fallback: ModelSpec | None = None
    """Wanted instead where no backend for `spec` can run."""
    stands_in_for: ModelSpec | None = None
    """Of a model whose `spec` is its fallback: what no backend here can run."""
    instead_of: SpecHash | None = None
    """Of a model whose `spec` is the last good one: what cannot be had now. Any other claim on its
    GPUs goes first."""

    @property
    def fetch_key(self) -> SpecHash:
        """What a download is for: with another `digest:` it is another one, of the same spec."""
        digest = self.spec.digest
        return self.spec_hash if digest is None else SpecHash(f"{self.spec_hash}@{digest}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A model of the manifest that is not for this node, and why. `nodes`: it names."""

    name: ModelName
    reason: str
    aliases: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRevision:
    """A revision that is not in force before somebody confirms it, as it would stop so many of
    those that run. `stops`: sorted by name. `changes`: other models that it has otherwise than
    what is in force, sorted too."""

    revision: str
    stops: tuple[ModelName, ...]
    running: int
    limit: StopLimit
    changes: tuple[ModelName, ...] = ()

    @property
    def reason(self) -> str:
        lets = f"`xgen-model reconcile --confirm {self.short}` lets it"
        return f"revision {self.short} waits for confirmation: {self._why}; {lets}"

    @property
    def foretold(self) -> str:
        """Of one that is not there yet."""
        return f"it would wait for confirmation: {self._why}"

    @property
    def _why(self) -> str:
        more = len(self.stops) - _NAMED
        names = ", ".join(self.stops[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        return (
            f"it would stop {len(self.stops)} of {self.running} running models ({names}), and the "
            f"stop limit is {self.limit}"
        )

    @property
    def short(self) -> str:
        """Enough of the revision to name it by."""
        return self.revision[:_SHOWN]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """All of one node's desired state. `models` are sorted by name, names are unique."""

    node: NodeName
    revision: str
    models: tuple[DesiredModel, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()
    suspend: bool = False
    """Observe and report; no start, no stop, no restart after a crash."""
    suspensions: tuple[Suspension, ...] = ()
    """Who says so, of the whole node and of single models, of which the same holds then."""
    stop_limits: tuple[StopLimit, ...] = ()
    """As they are written, of which the strictest counts; none: the node's own does."""
    windows: tuple[Window, ...] = ()
    """When what serves may be stopped; none: at any time."""
    confirms: frozenset[str] = frozenset()
    """The waiting revisions that this one names as meant (`confirm_stop`)."""
    waiting: WaitingRevision | None = None
    """The newer one that is not in force yet."""

    def suspends(self, model: ModelName) -> bool:
        """Whether nothing is started, stopped or restarted of it."""
        return self.suspend or any(each.model == model for each in self.suspensions)

    def suspension_of(self, model: ModelName) -> Suspension | None:
        """Its own, else that of the node."""
        own = (each for each in self.suspensions if each.model == model)
        of_node = (each for each in self.suspensions if each.model is None)
        return next(own, None) or next(of_node, None)
