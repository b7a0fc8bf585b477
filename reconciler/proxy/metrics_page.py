"""`/metrics`: the agent's own figures; `/metrics/backends`: those of its engines, on one page."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import Receive, Scope, Send

from reconciler import metrics as names
from reconciler.condition import Condition, ConditionType
from reconciler.errors import Transient
from reconciler.metrics import Metrics, Shown, UpstreamFault
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from reconciler.proxy import headers, reply
from reconciler.proxy.board import Routes, StatusReader
from reconciler.proxy.exposition import Merged
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.peers.peer import Peers
from reconciler.proxy.turns import Turns
from reconciler.proxy.visits import Visits
from reconciler.status import Device, DriftKind, Endpoint, ModelStatus, RestartCause, Status

_CLASSIC = b"text/plain; version=0.0.4; charset=utf-8"

log = structlog.get_logger("xgen.proxy")

Value = tuple[tuple[str, ...], float]
"""The values of the labels, and the sample's."""


class AgentMetrics:
    """`GET /metrics`, in the format that the scraper asks for."""

    def __init__(
        self, metrics: Metrics, routes: Routes, traffic: Traffic, turns: Turns, visits: Visits
    ) -> None:
        self._metrics = metrics
        self._routes = routes
        self._traffic = traffic
        self._turns = turns
        self._visits = visits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accept = headers.first(scope["headers"], b"accept") or b""
        encode, content_type = choose_encoder(accept.decode("latin-1"))
        table = self._routes.current()
        status, nodes = table.status, {peer.node for peer in table.peers.all if peer.node}
        self._metrics.keep_only({route.name for route in table.routes}, nodes)
        shown = [
            *_shown(status, self._traffic.of_model, self._turns.waiting),
            (names.TOKENS, self._tokens(status)),
            (names.PEER_UP, _up(table.peers)),
            (names.REQUESTS_AWAY, _away(table.peers, self._visits)),
        ]
        page = _Page(self._metrics, shown)
        body = await asyncio.to_thread(encode, page)
        await reply.send_text(send, body, content_type=content_type.encode())

    def _tokens(self, status: Status) -> list[Value]:
        return [
            ((model.name, kind.value), float(tokens))
            for model in status.models
            for kind, tokens in self._metrics.tokens_of(model.name).items()
        ]


class _Page(Collector):
    """What was counted, and what the status shows."""

    def __init__(self, metrics: Metrics, shown: list[tuple[Shown, list[Value]]]) -> None:
        self._metrics = metrics
        self._shown = shown

    def collect(self) -> Iterable[Metric]:
        yield from self._metrics.registry.collect()
        for metric, values in self._shown:
            family = metric.family()
            for labels, value in values:
                family.add_metric(labels, value)
            yield family


def _shown(
    status: Status, in_flight: Callable[[ModelName], int], waiting: Callable[[ModelName], int]
) -> list[tuple[Shown, list[Value]]]:
    models = status.models
    revision = status.revision
    revisions = (("applied", revision.applied), ("attempted", revision.attempted))
    return [
        (names.AGENT_INFO, [((status.agent_version,), 1.0)]),
        (names.CONDITION, [value for each in status.conditions for value in _standings(each)]),
        (names.DRIFT, _drift(status)),
        (names.MANIFEST_INFO, [((value, kind), 1.0) for kind, value in revisions if value]),
        (names.MODEL_DESIRED, [((m.name,), float(m.detail.enabled)) for m in models]),
        (names.MODEL_STATE, [value for model in models for value in _states(model)]),
        (names.MODEL_DEGRADED, [((m.name,), float(_is_degraded(m))) for m in models]),
        (names.MODEL_RESTARTS, [value for model in models for value in _restarts(model)]),
        (
            names.MODEL_LOAD_SECONDS,
            [((m.name,), m.detail.load_seconds) for m in models if m.detail.load_seconds],
        ),
        (names.FETCH_BYTES, [value for model in models for value in _fetch_bytes(model)]),
        (names.GPU_MEMORY, [value for each in status.devices for value in _gpu_memory(each)]),
        (
            names.GPU_UTILIZATION,
            [
                ((each.identity,), each.utilization / 100)
                for each in status.devices
                if each.utilization is not None
            ],
        ),
        (names.REQUESTS_IN_FLIGHT, [((m.name,), float(in_flight(m.name))) for m in models]),
        (names.REQUESTS_WAITING, [((m.name,), float(waiting(m.name))) for m in models]),
    ]


def _away(peers: Peers, visits: Visits) -> list[Value]:
    counts = Counter[tuple[str, str]]()
    nodes = {peer.address: peer.node for peer in peers.all}
    for (address, model), count in visits.away.items():
        counts[model, nodes.get(address) or str(address)] += count
    return [(labels, float(count)) for labels, count in counts.items()]


def _states(model: ModelStatus) -> list[Value]:
    return [((model.name, state.value), float(state is model.state)) for state in State]


def _restarts(model: ModelStatus) -> list[Value]:
    """All causes from the start: a counter that begins with 1 has not increased, for Prometheus."""
    counts = dict(model.detail.restart_causes)
    return [((model.name, each.value), float(counts.get(each, 0))) for each in RestartCause]


def _is_degraded(model: ModelStatus) -> bool:
    return any(
        each.type is ConditionType.DEGRADED and each.status == "True" for each in model.conditions
    )


def _standings(condition: Condition) -> list[Value]:
    every = ("True", "False", "Unknown")
    return [((condition.type.value, each), float(condition.status == each)) for each in every]


def _drift(status: Status) -> list[Value]:
    every = [*status.drift, *(each for model in status.models for each in model.drift)]
    counts = Counter(each.kind for each in every)
    return [((kind.value,), float(counts[kind])) for kind in DriftKind]


def _up(peers: Peers) -> list[Value]:
    """One series a node, whatever number of agents give its name; of one that was never seen, its
    address stands for it."""
    up: dict[str, bool] = {}
    for peer in peers.all:
        node = peer.node or str(peer.address)
        up[node] = up.get(node, False) or peer.reachable
    return [((node,), float(reachable)) for node, reachable in up.items()]


def _gpu_memory(device: Device) -> list[Value]:
    kinds = (
        ("total", device.memory_total_bytes),
        ("used", device.memory_used_bytes),
        ("free", device.memory_free_bytes),
    )
    return [((device.identity, kind), float(size)) for kind, size in kinds if size is not None]


def _fetch_bytes(model: ModelStatus) -> list[Value]:
    """Only while it goes on."""
    now = model.progress
    if now is None:
        return []
    return [
        ((model.name, now.doing.value, "done"), float(now.done_bytes)),
        ((model.name, now.doing.value, "total"), float(now.total_bytes)),
    ]


class EnginePages(Protocol):
    """Engines' own pages, as `observe.engine_pages` reads them."""

    async def read(self, asked: Endpoint, path: str) -> str:
        """Raises Transient."""


class BackendMetrics:
    """`GET /metrics/backends`. One that does not answer in time is left out, and counted."""

    def __init__(self, metrics: Metrics, board: StatusReader, pages: EnginePages) -> None:
        self._metrics = metrics
        self._board = board
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = self._board.current()
        asked = [(m.name, m.endpoint) for m in status.models if m.endpoint is not None]
        pages = await asyncio.gather(*(self._page(name, endpoint) for name, endpoint in asked))
        found = [(name, page) for (name, _), page in zip(asked, pages, strict=True) if page]
        body = await asyncio.to_thread(self._merged, found, status.node)
        await reply.send_text(send, body, content_type=_CLASSIC)

    async def _page(self, model: ModelName, endpoint: Endpoint) -> str | None:
        if endpoint.metrics_path is None:
            return None
        try:
            return await self._pages.read(endpoint, endpoint.metrics_path)
        except Transient as exc:
            self._left_out(model, exc)
            return None

    def _merged(self, pages: Iterable[tuple[ModelName, str]], node: str) -> bytes:
        merged = Merged()
        for model, page in pages:
            try:
                merged.add(page, model=model, node=node)
            except ValueError as exc:
                self._left_out(model, exc)
        return merged.text().encode()

    def _left_out(self, model: ModelName, error: Exception) -> None:
        self._metrics.count_upstream(UpstreamFault.SCRAPE)
        log.debug("metrics of a backend are left out", model=model, cause=str(error))
