"""Every metric of the agent: its name, what it means, its labels. docs/metrics.md is for readers.

Two kinds: what is counted as it happens (`Metrics`), and what is read off the status when somebody
asks (`SHOWN`), so that no series outlives its subject. A `model` label is only ever the name of a
model of the cluster, never what a client sent; every other label has a few known values.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from reconciler.request_series import RequestSeries, RequestWatch

# A second series beside each, which nobody asked for. The library's own annotation is missing.
disable_created_metrics()  # type: ignore[no-untyped-call]

_REQUEST_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_FIRST_BYTE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TICK_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
_TRANSFER_SECONDS = (1, 5, 15, 60, 300, 900, 3600, 14400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A metric whose samples are made when it is asked for."""

    name: str
    help: str
    labels: tuple[str, ...]
    counter: bool = False

    def family(self) -> GaugeMetricFamily | CounterMetricFamily:
        """Without samples yet."""
        kind = CounterMetricFamily if self.counter else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels)


MANIFEST_INFO = Shown(
    name="xgen_manifest_info",
    help="1 for the revision last taken whole (applied), and the one last seen (attempted).",
    labels=("revision", "state"),
)
AGENT_INFO = Shown(
    name="xgen_agent_info",
    help="1; version is the release of the agent.",
    labels=("version",),
)
CONDITION = Shown(
    name="xgen_condition",
    help="1 for the status that a condition of the node is in, 0 for the others.",
    labels=("type", "status"),
)
DRIFT = Shown(
    name="xgen_drift",
    help="What is otherwise than the agent made it, of the node and of its models, by kind.",
    labels=("kind",),
)
MODEL_DESIRED = Shown(
    name="xgen_model_desired",
    help="1: the manifest wants the model on this node; 0: disabled, or removed and still running.",
    labels=("model",),
)
MODEL_STATE = Shown(
    name="xgen_model_state",
    help="1 for the state that the model is in, 0 for the others.",
    labels=("model", "state"),
)
MODEL_DEGRADED = Shown(
    name="xgen_model_degraded",
    help="1 while a fault costs the model something: it fails, or not what is wanted serves.",
    labels=("model",),
)
MODEL_RESTARTS = Shown(
    name="xgen_model_restarts_total",
    help="Starts of the model's backend after the first, by what made them necessary.",
    labels=("model", "reason"),
    counter=True,
)
MODEL_LOAD_SECONDS = Shown(
    name="xgen_model_load_seconds",
    help="From the start of the backend that serves to its first real answer.",
    labels=("model",),
)
FETCH_BYTES = Shown(
    name="xgen_fetch_bytes",
    help="Of the model's files while they are fetched, checked or imported: done, and in total.",
    labels=("model", "doing", "kind"),
)
GPU_MEMORY = Shown(
    name="xgen_gpu_memory_bytes",
    help="Of a GPU's memory, as far as its driver tells: total, used and free.",
    labels=("gpu", "kind"),
)
GPU_UTILIZATION = Shown(
    name="xgen_gpu_utilization_ratio",
    help="How busy a GPU is, 0 to 1, where its driver tells.",
    labels=("gpu",),
)
REQUESTS_IN_FLIGHT = Shown(
    name="xgen_requests_in_flight",
    help="Requests that the model's backends are working on.",
    labels=("model",),
)
REQUESTS_WAITING = Shown(
    name="xgen_requests_waiting",
    help="Requests that wait for a turn at the model (max_in_flight).",
    labels=("model",),
)
PEER_UP = Shown(
    name="xgen_peer_up",
    help="1 while the other agent of this node answers, else 0.",
    labels=("node",),
)
REQUESTS_AWAY = Shown(
    name="xgen_requests_away",
    help="Requests that this node has passed on, and another one is working on.",
    labels=("model", "node"),
)
TOKENS = Shown(
    name="xgen_tokens_total",
    help="Tokens by the count of the model's engine: prompt those that it read, generated those "
    "that it wrote.",
    labels=("model", "kind"),
    counter=True,
)


class TokenKind(StrEnum):
    PROMPT = "prompt"
    GENERATED = "generated"


class TickResult(StrEnum):
    """`changed`: actions were begun; `idle`: nothing was to do; `failed`: our own fault."""

    CHANGED = "changed"
    IDLE = "idle"
    FAILED = "failed"


class UpstreamFault(StrEnum):
    """`unreachable`: no connection; `lost`: gone before the first byte; `lost_midway`: after it;
    `scrape`: its own metrics could not be had. `peer_…`: the same of another agent."""

    UNREACHABLE = "unreachable"
    LOST = "lost"
    LOST_MIDWAY = "lost_midway"
    SCRAPE = "scrape"
    PEER_UNREACHABLE = "peer_unreachable"
    PEER_LOST = "peer_lost"
    PEER_LOST_MIDWAY = "peer_lost_midway"


class FullCollection(StrEnum):
    """Why one of Python's garbage was made, by us or by Python itself."""

    REST = "rest"
    MEMORY = "memory"
    PYTHON = "python"


class ResendCause(StrEnum):
    """What became of the first try. `not_started`: a peer said that it takes none."""

    UNREACHABLE = "unreachable"
    LOST = "lost"
    NOT_STARTED = "not_started"


class Metrics:
    """What is counted as it happens. One for each agent."""

    def __init__(self, *, node: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # process_*, as every exporter has them
        self._node = node
        self._requests = Counter(
            "xgen_requests_total",
            "Answers to inference requests. model is empty where the request named no known one; "
            "code 499: the client left.",
            ("model", "node", "code"),
            registry=self.registry,
        )
        self._durations = Histogram(
            "xgen_request_duration_seconds",
            "From the arrival of a request to the end of its answer, where a backend was asked "
            "and the client stayed.",
            ("model",),
            buckets=_REQUEST_SECONDS,
            registry=self.registry,
        )
        self._first_bytes = Histogram(
            "xgen_time_to_first_byte_seconds",
            "From the arrival of a request to the first byte of its answer's body.",
            ("model",),
            buckets=_FIRST_BYTE_SECONDS,
            registry=self.registry,
        )
        self._upstream_errors = Counter(
            "xgen_upstream_errors_total",
            "Backends and other agents that failed us, by how.",
            ("kind",),
            registry=self.registry,
        )
        self._resent = Counter(
            "xgen_requests_resent_total",
            "Requests that were sent to a second replica, by what became of the first try.",
            ("cause",),
            registry=self.registry,
        )
        self._ticks = Counter(
            "xgen_reconcile_total",
            "Ticks of the loop, by result.",
            ("result",),
            registry=self.registry,
        )
        self._tick_seconds = Histogram(
            "xgen_reconcile_duration_seconds",
            "One tick: observe, plan, dispatch, publish.",
            buckets=_TICK_SECONDS,
            registry=self.registry,
        )
        self._last_success = Gauge(
            "xgen_last_success_timestamp_seconds",
            "The last tick without a fault, whose manifest was readable and taken up whole.",
            registry=self.registry,
        )
        self._hub_bytes = Counter(
            "xgen_hub_transfer_bytes_total",
            "Bytes moved between the hub and this node, those of failed transfers too.",
            ("direction",),
            registry=self.registry,
        )
        self._hub_seconds = Histogram(
            "xgen_hub_transfer_seconds",
            "Whole fetches of a model's files that succeeded.",
            buckets=_TRANSFER_SECONDS,
            registry=self.registry,
        )
        self._imported = Counter(
            "xgen_import_bytes_total",
            "Bytes that imports have fetched from Hugging Face, those of failed imports too.",
            registry=self.registry,
        )
        self._import_jobs = Gauge(
            "xgen_import_jobs",
            "Imports that this node knows of, by the state that they are in.",
            ("state",),
            registry=self.registry,
        )
        self._cache_bytes = Gauge(
            "xgen_cache_bytes",
            "Of the disk that the cache of model files takes, partial files included.",
            registry=self.registry,
        )
        for result in TickResult:
            self._ticks.labels(result.value)
        for fault in UpstreamFault:
            self._upstream_errors.labels(fault.value)
        self._full_collections = Counter(
            "xgen_full_collections_total",
            "Full collections of the agent's garbage, each of which holds up everybody.",
            ("cause",),
            registry=self.registry,
        )
        for why in FullCollection:
            self._full_collections.labels(why.value)
        for cause in ResendCause:
            self._resent.labels(cause.value)
        self._pulled = self._hub_bytes.labels("pull")
        self._pushed = self._hub_bytes.labels("push")
        self._unknown = RequestSeries(self._requests, ("", node), None, None)
        self._models: dict[str, RequestSeries] = {}
        self._elsewhere: dict[tuple[str, str], RequestSeries] = {}
        self._timed: set[str] = set()
        """Models whose requests were timed, wherever they were answered."""
        self._tokens: dict[str, dict[TokenKind, int]] = {}

    def watch_request(self) -> RequestWatch:
        """For a request of which no model is known yet."""
        return RequestWatch(self._unknown)

    def of_model(self, model: str) -> RequestSeries:
        """Of answers of this node. `model`: the name of one that is known."""
        series = self._models.get(model)
        if series is None:
            series = self._models[model] = self._series(model, self._node)
        return series

    def elsewhere(self, model: str, node: str) -> RequestSeries:
        """Of those that another node gave."""
        series = self._elsewhere.get((model, node))
        if series is None:
            series = self._elsewhere[model, node] = self._series(model, node)
        return series

    def _series(self, model: str, node: str) -> RequestSeries:
        self._timed.add(model)
        first_byte, whole = self._first_bytes.labels(model), self._durations.labels(model)
        return RequestSeries(self._requests, (model, node), first_byte, whole)

    def keep_only(self, models: Collection[str], nodes: Collection[str] = ()) -> None:
        """Drop the series of models that are gone, and of other nodes that are."""
        for model, node in tuple(self._elsewhere):
            if model not in models or node not in nodes:
                self._elsewhere.pop((model, node)).forget()
        for gone in self._timed - set(models):
            self._timed.remove(gone)
            self._first_bytes.remove(gone)
            self._durations.remove(gone)
        for gone in self._models.keys() - set(models):
            self._models.pop(gone).forget()
        self._tokens = {model: kinds for model, kinds in self._tokens.items() if model in models}

    def requests_of(self, model: str) -> float:
        """How many requests to the model have ended."""
        series = self._models.get(model)
        return series.ended() if series is not None else 0

    def count_tokens(self, model: str, kind: TokenKind, tokens: int) -> None:
        kinds = self._tokens.setdefault(model, {})
        kinds[kind] = kinds.get(kind, 0) + tokens

    def tokens_of(self, model: str) -> Mapping[TokenKind, int]:
        """What was counted; nothing for a kind that its engine never told."""
        return self._tokens.get(model, {})

    def count_upstream(self, fault: UpstreamFault) -> None:
        self._upstream_errors.labels(fault.value).inc()

    def count_resent(self, cause: ResendCause) -> None:
        self._resent.labels(cause.value).inc()

    def count_full_collection(self, cause: FullCollection) -> None:
        self._full_collections.labels(cause.value).inc()

    def count_tick(self, result: TickResult, *, seconds: float) -> None:
        self._ticks.labels(result.value).inc()
        self._tick_seconds.observe(seconds)

    def note_success(self) -> None:
        self._last_success.set_to_current_time()

    def count_pulled(self, size_bytes: int) -> None:
        """From any thread."""
        self._pulled.inc(size_bytes)

    def count_pushed(self, size_bytes: int) -> None:
        """From any thread."""
        self._pushed.inc(size_bytes)

    def count_imported(self, size_bytes: int) -> None:
        """From any thread."""
        self._imported.inc(size_bytes)

    def time_fetch(self, seconds: float) -> None:
        self._hub_seconds.observe(seconds)

    def show_imports(self, counts: Mapping[str, Callable[[], int]]) -> None:
        """By state. They are asked at each scrape, in a thread."""
        for state, count in counts.items():
            self._import_jobs.labels(state).set_function(count)

    def show_cache(
        self, used_bytes: Callable[[], int], budget_bytes: Callable[[], int | None]
    ) -> None:
        """Both are asked at each scrape, in a thread. Without a budget there is no series of it."""
        self._cache_bytes.set_function(used_bytes)
        if budget_bytes() is not None:
            budget = Gauge(
                "xgen_cache_budget_bytes",
                "How large the cache of model files may become (--cache-budget).",
                registry=self.registry,
            )
            budget.set_function(lambda: budget_bytes() or 0)
