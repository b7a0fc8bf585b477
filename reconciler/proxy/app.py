"""The HTTP side put together: Starlette's router in front of raw ASGI endpoints."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler.metrics import Metrics
from reconciler.plan.desired import ModelType
from reconciler.proxy import errors, reply
from reconciler.proxy import management as operators
from reconciler.proxy.as_of import Beats
from reconciler.proxy.board import Routes, StatusReader
from reconciler.proxy.bounds import Bounds
from reconciler.proxy.cluster import Model, Models, Self, Servers
from reconciler.proxy.downloads import AskDownload, Download, Downloads, Jobs, RemoveDownload
from reconciler.proxy.engine_paths import ENGINE_PATHS, KEPT_BY_ENGINES, NOT_OFFERED_YET
from reconciler.proxy.feeds import Events, ModelLogs
from reconciler.proxy.forward import Upstream
from reconciler.proxy.frame import Frame
from reconciler.proxy.gateway import Gateway
from reconciler.proxy.guard import Guard
from reconciler.proxy.health import Healthz, Readyz
from reconciler.proxy.hop import Hop
from reconciler.proxy.inference import Inference
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.intake import Intake
from reconciler.proxy.local_loads import UNTOLD, EngineFigures, LocalLoads
from reconciler.proxy.management import Management
from reconciler.proxy.metrics_page import AgentMetrics, BackendMetrics, EnginePages
from reconciler.proxy.paths import Paths
from reconciler.proxy.peeking import Peeking
from reconciler.proxy.peers.bulletin import Bulletin, Following
from reconciler.proxy.peers.side import ALONE, ClusterSide
from reconciler.proxy.push_hook import Pushed, PushHook
from reconciler.proxy.query import WithoutParameters
from reconciler.proxy.rails import Resume, Suspend
from reconciler.proxy.rehearsal import Rehearse
from reconciler.proxy.replicas import Replicas
from reconciler.proxy.route_page import RoutePage
from reconciler.proxy.slot_news import SlotNews
from reconciler.proxy.slot_page import SlotPage
from reconciler.proxy.spool import Spool
from reconciler.proxy.storage import HubListing, StoredModels
from reconciler.proxy.streams import Streams
from reconciler.proxy.target import TargetServer
from reconciler.proxy.turns import Turns
from reconciler.proxy.visits import Visits

_EMBEDDING = "/api/inference/embedding"


def create_app(
    board: Following,
    *,
    traffic: Traffic,
    metrics: Metrics,
    management: Management,
    push_hook: PushHook | None = None,
    downloads: Jobs,
    hub: HubListing,
    pages: EnginePages,
    bounds: Bounds,
    pulse: Beats,
    upstream: Upstream,
    cluster: ClusterSide = ALONE,
    visits: Visits | None = None,
    engines: EngineFigures = UNTOLD,
) -> ASGIApp:
    """The application; its lifespan opens and closes `upstream`, the client to the backends."""
    routes = Routes(board, cluster.peers)
    peeking = Peeking()
    turns = Turns(queue_length=bounds.queue_length, wait_seconds=bounds.queue_seconds)
    loads, visits = LocalLoads(traffic, turns, engines), visits or Visits()
    bulletin = Bulletin(
        board,
        loads,
        traffic,
        pulse,
        agent_id=cluster.agent_id,
        ending=management.ending,
    )
    replicas = Replicas(routes, loads, cluster.loads, visits)
    slot_news = SlotNews(routes, upstream, cluster, replicas, turns)
    gateway = Gateway(
        routes=routes,
        metrics=metrics,
        traffic=traffic,
        upstream=upstream,
        intake=Intake(body_bytes=bounds.body_bytes, together_bytes=bounds.together_bytes),
        spool=Spool(
            form_bytes=bounds.form_bytes, together_bytes=bounds.forms_bytes, threads=peeking
        ),
        peeking=peeking,
        turns=turns,
        heartbeat_seconds=bounds.heartbeat_seconds,
        cluster=cluster,
        loads=loads,
        replicas=replicas,
        visits=visits,
        slot_news=slot_news,
    )

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        await upstream.open()
        try:
            yield
        finally:
            await slot_news.close()
            await upstream.close()
            peeking.close()

    router = Paths(
        [
            *_inference(gateway),
            *_models(routes),
            *_status(board, pulse, bulletin, cluster),
            Route("/api/cluster/route", _Only(GET=RoutePage(routes, replicas))),
            Route("/api/cluster/slot", _Only(GET=SlotPage(routes, turns, loads, cluster))),
            *_management(management, routes, traffic, pulse),
            Route("/api/management/pushed", _plain(POST=Pushed(push_hook))),
            *_downloads(downloads, routes),
            Route("/api/storage/models", _plain(GET=StoredModels(hub, routes))),
            Route("/metrics", _Only(GET=AgentMetrics(metrics, routes, traffic, turns, visits))),
            Route("/metrics/backends", _Only(GET=BackendMetrics(metrics, board, pages))),
            *_later(),
        ],
        default=_not_found,
        lifespan=lifespan,
    )
    hop = Hop(board, cluster, upstream, metrics, visits)
    return Frame(Guard(TargetServer(router, board, cluster, hop), cluster.tokens), board)


class _Only:
    """Lets the methods through that have an endpoint (HEAD as GET); answers OPTIONS, refuses the
    rest."""

    def __init__(self, **endpoints: ASGIApp) -> None:
        if "GET" in endpoints:
            endpoints = {"GET": endpoints["GET"], "HEAD": endpoints["GET"], **endpoints}
        self._endpoints = endpoints
        self._allowed = ", ".join((*endpoints, "OPTIONS"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if (endpoint := self._endpoints.get(method)) is not None:
            await endpoint(scope, receive, send)
        elif method == "OPTIONS":
            await reply.send_options(send, self._allowed)
        else:
            problem = errors.wrong_method(method, scope["path"], self._allowed)
            await reply.send_problem(scope, send, problem)


def _plain(**endpoints: ASGIApp) -> _Only:
    """Of what takes no parameters."""
    return _Only(**{method: WithoutParameters(each) for method, each in endpoints.items()})


class _NotOffered:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await reply.send_problem(scope, send, errors.not_offered(scope["path"]))


class _NotKept:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await reply.send_problem(scope, send, errors.not_kept(scope["path"]))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await reply.send_problem(scope, send, errors.unknown_path(scope["path"]))


def _inference(gateway: Gateway) -> list[BaseRoute]:
    """First, because routes are tried in order and these are the busy ones."""
    ways = [(way + path.path, path) for path in ENGINE_PATHS for way in ("", "/api/inference")]
    ways += [(_EMBEDDING + p.path, p) for p in ENGINE_PATHS if p.path == "/v1/embeddings"]
    return [Route(ours, _Only(POST=Inference(gateway, path))) for ours, path in ways]


def _models(routes: Routes) -> list[BaseRoute]:
    every: list[BaseRoute] = []
    for prefix, only in (("", None), ("/api/inference", None), (_EMBEDDING, ModelType.EMBEDDING)):
        every.append(Route(f"{prefix}/v1/models", _Only(GET=Models(routes, only))))
        every.append(Route(f"{prefix}/v1/models/{{id:path}}", _Only(GET=Model(routes, only))))
    return every


def _status(
    board: StatusReader, pulse: Beats, bulletin: Bulletin, cluster: ClusterSide
) -> list[BaseRoute]:
    servers = Servers(board, bulletin, cluster)
    return [
        Route("/healthz", _Only(GET=Healthz())),
        Route("/readyz", _Only(GET=Readyz(board, pulse))),
        Route("/cluster", _Only(GET=servers.browsed)),
        Route("/api/cluster/servers", _Only(GET=servers)),
        Route("/api/cluster/_self", _Only(GET=Self(board, bulletin, cluster))),
    ]


def _management(
    management: Management, routes: Routes, traffic: Traffic, pulse: Beats
) -> list[BaseRoute]:
    streams = Streams(management.ending)
    ways = {
        "models": _plain(GET=operators.Models(routes, traffic, pulse)),
        "models/{name:path}/logs": _Only(GET=ModelLogs(management.logs, routes, streams)),
        "models/{name:path}": _plain(GET=operators.Model(routes, traffic, pulse)),
        "plan": _plain(
            GET=operators.Plan(management.plans, routes),
            POST=Rehearse(management.rehearsals, routes),
        ),
        "history": _plain(GET=operators.History(management, routes)),
        "events": _Only(GET=Events(management.journal, routes, streams)),
        "suspend": _plain(POST=Suspend(management.orders, routes)),
        "resume": _plain(POST=Resume(management.orders, routes)),
        "reconcile": _plain(
            POST=operators.Reconcile(management.commands, management.orders, routes)
        ),
    }
    return [Route(f"/api/management/{path}", endpoint) for path, endpoint in ways.items()]


def _downloads(jobs: Jobs, routes: Routes) -> list[BaseRoute]:
    every = _plain(GET=Downloads(jobs, routes), POST=AskDownload(jobs, routes))
    one = _plain(GET=Download(jobs, routes), DELETE=RemoveDownload(jobs, routes))
    return [Route("/api/download", every), Route("/api/download/{id}", one)]


def _later() -> list[BaseRoute]:
    ways = ("", "/api/inference")
    later = [Route(way + path, _NotOffered()) for way in ways for path in NOT_OFFERED_YET]
    kept = [Route(way + KEPT_BY_ENGINES, _NotKept()) for way in ways]
    return [*later, *kept]
