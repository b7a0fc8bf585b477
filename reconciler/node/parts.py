"""The parts of one agent, made and wired to each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp

from reconciler.apply.attempts import FILE as REVISIONS
from reconciler.apply.attempts import AttemptsFile
from reconciler.apply.backends import Backends
from reconciler.apply.comparisons import Comparisons
from reconciler.apply.custody import HoldFolder
from reconciler.apply.effects import Effects
from reconciler.apply.engine_watch import EngineWatch
from reconciler.apply.gpu_numbers import FILE as GPU_NUMBERS
from reconciler.apply.gpu_numbers import GpuNumbers
from reconciler.apply.gpu_watch import GpuWatch
from reconciler.apply.histories import Histories
from reconciler.apply.hub_questions import HubQuestions
from reconciler.apply.liveness import Liveness, Surroundings
from reconciler.apply.mendings import Mendings
from reconciler.apply.model_log import Logs
from reconciler.apply.pushes import Pushes
from reconciler.apply.rail_notes import RailFile
from reconciler.apply.stop import Hurry, Stopper
from reconciler.backend.offer import HubSays
from reconciler.cache.beside import gguf_hint
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pin_board import Owner
from reconciler.events import Journal
from reconciler.hub.writable import WritableHub
from reconciler.jobs.job import JobState
from reconciler.loop.archive import Archive
from reconciler.loop.books import Books
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.clock import Clock
from reconciler.loop.commands import Commands
from reconciler.loop.deliberation import Deliberation
from reconciler.loop.drifts import Drifts
from reconciler.loop.fallbacks import Fallbacks
from reconciler.loop.foresight import Hub
from reconciler.loop.gpus import GpuLedger
from reconciler.loop.inquiries import Inquiries
from reconciler.loop.intent import Intent
from reconciler.loop.keeping import Keeping
from reconciler.loop.launch_drifts import LaunchDrifts
from reconciler.loop.memory import MemoryWatch
from reconciler.loop.observer import Observer
from reconciler.loop.orders import Orders
from reconciler.loop.pardons import Pardons
from reconciler.loop.publisher import Publisher
from reconciler.loop.rails import Rails
from reconciler.loop.reconciler import Reconciler
from reconciler.loop.rehearsals import Rehearsals
from reconciler.loop.reverts import Reverts
from reconciler.loop.revisions import Revisions
from reconciler.loop.surging import Surges
from reconciler.loop.troubles import Troubles
from reconciler.metrics import Metrics
from reconciler.node.backends import answers_are_there, open_backends
from reconciler.node.board import Board
from reconciler.node.bounds import bounds_of
from reconciler.node.clock import SystemClock
from reconciler.node.engine_loads import EngineLoads
from reconciler.node.engines import look_at_engines, make_engines
from reconciler.node.full_collections import FullCollections, news_of
from reconciler.node.hub import make_store, make_writer
from reconciler.node.hub_models import HubModels
from reconciler.node.import_report import ImportReport
from reconciler.node.imports import Downloads, Importer, make_imports
from reconciler.node.metered_store import MeteredStore
from reconciler.node.offers import offer_of
from reconciler.node.source import make_push_hook, make_source
from reconciler.node.tokens import LOOK_SECONDS, LOOK_SECONDS_WITH_PEERS, TokenCount
from reconciler.observe.devices.survey import survey
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.processes import boot_id
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.ids import ModelName, NodeName
from reconciler.proxy.app import create_app
from reconciler.proxy.forward import Upstream
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.management import Management
from reconciler.proxy.peers.side import ALONE, ClusterSide
from reconciler.proxy.visits import Visits
from reconciler.settings import Settings
from reconciler.source.last_good import LastGood
from reconciler.source.manifest_source import ManifestSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What has to be run, and what has to be ended. `closed`: ends the HTTP side, whose way to the
    backends is `upstream`. `visits`: requests at them, and at peers."""

    app: ASGIApp
    upstream: Upstream
    visits: Visits
    closed: asyncio.Event
    journal: Journal
    source: ManifestSource
    intent: Intent
    rails: Rails
    backends: Backends
    stopper: Stopper
    effects: Effects
    publisher: Publisher
    tokens: TokenCount
    liveness: Liveness
    reconciler: Reconciler
    rehearsals: Rehearsals
    collections: FullCollections


@asynccontextmanager
async def assembled(
    settings: Settings,
    node: NodeName,
    board: Board,
    hurry: Hurry,
    *,
    clock: Clock | None = None,
    cluster: ClusterSide = ALONE,
    hold_folder: HoldFolder = lambda: None,
) -> AsyncIterator[Parts]:
    """One agent's parts, opened; closed when the block is left. Raises Rejected.

    `clock`: None: the system's. `hold_folder`: of the data folder.
    """
    wakeup, closed = asyncio.Event(), asyncio.Event()
    clock = clock or SystemClock()
    traffic = Traffic()
    journal = Journal(node=node, now=lambda: clock.wall(clock.monotonic()))
    chronicle = Chronicle(journal)
    metrics = Metrics(node=node)
    watch = GpuWatch(survey, clock=clock.monotonic, wake=wakeup.set)
    last_good = LastGood(settings.data_dir / "last-good")
    rail_file = RailFile(settings.data_dir)
    orders = Orders(wake=wakeup.set, look_again=lambda: _look_again(source, watch))
    rails = Rails(rail_file, orders, clock=clock, journal=journal, limit=settings.stop_limit)
    await asyncio.to_thread(rails.open)
    intent = Intent(
        node=node,
        last_good=last_good,
        wake=wakeup.set,
        journal=journal,
        rails=rails,
        peers=settings.peers is not None,
    )
    await intent.open()
    source = make_source(settings, clock, settled=intent.in_force)
    commands = Commands(wake=wakeup.set, look_again=partial(_look_again, source, watch))
    store = make_store(settings.hub)
    metered = MeteredStore(store, metrics.count_pulled) if store is not None else None
    imports = make_imports(
        settings.hub,
        settings.data_dir,
        settings.environment,
        ImportReport(chronicle, metrics, lambda: intent.understanding.desired),
    )
    cache = ModelCache(
        settings.models_dir,
        metered,
        importer=Importer(imports),
        allowed_file_roots=settings.permissions.file_roots,
        owner=Owner(node=node, data_dir=str(settings.data_dir)),
        budget=settings.cache_budget,
    )
    await asyncio.to_thread(cache.open)
    metrics.show_imports({state.value: partial(imports.count, state) for state in JobState})
    metrics.show_cache(lambda: cache.used_bytes, lambda: cache.keeper.budget_bytes)
    async with watch.asking(), AsyncExitStack() as stack:
        # First: what an earlier agent left is asked whether it serves, while the rest is made.
        backends = await stack.enter_async_context(
            open_backends(settings, node, clock, wakeup, hold_folder)
        )
        engines = make_engines(settings)
        looking = EngineWatch(
            look_at_engines(settings),
            engines,
            wake=wakeup.set,
            first=partial(answers_are_there, backends),
        ).looking()
        await stack.enter_async_context(looking)
        await asyncio.to_thread(imports.open)
        stack.push_async_callback(asyncio.to_thread, imports.close)
        writer = _writer(settings)
        hub_models = HubModels(writer, cache=cache, node=node)
        stack.push_async_callback(hub_models.close)
        pages = await stack.enter_async_context(EnginePages())
        engine_loads = EngineLoads()
        tokens = TokenCount(
            live=backends.live,
            traffic=traffic,
            pages=pages,
            metrics=metrics,
            loads=engine_loads,
            look_seconds=LOOK_SECONDS if settings.peers is None else LOOK_SECONDS_WITH_PEERS,
        )
        liveness = Liveness(
            backends.live,
            Surroundings(
                traffic=traffic,
                pages=pages,
                stall_of=partial(_stall, intent),
                families=backends.families,
                clock=clock.monotonic,
                wake=wakeup.set,
                probing=tokens.catch_up,
                probed=tokens.leave_out,
                report=chronicle.hung,
            ),
        )
        stopper = Stopper(backends, tokens, hurry)
        hints = HubQuestions("gguf-hints", store, gguf_hint, wake=wakeup.set)
        offers = HubQuestions(
            "hub-offers", store, partial(offer_of, writer), silence=HubSays(), wake=wakeup.set
        )
        comparisons = Comparisons(cache, wake=wakeup.set)
        mendings = Mendings(cache, wake=wakeup.set)
        pushes = Pushes(cache, wake=wakeup.set)
        effects = Effects(
            cache=cache,
            backends=backends,
            engines=engines,
            stopper=stopper,
            clock=clock.monotonic,
            wake=wakeup.set,
            environment=settings.environment,
        )
        await stack.enter_async_context(effects)
        reverts = Reverts(cache.lookup, lambda: engines.inventory)
        books = Books()
        histories = Histories(settings.data_dir / "history")
        archive = Archive(histories, boot_id(), lambda: engines.inventory, clock)
        await asyncio.to_thread(archive.open, books)
        backends.custody.watch(histories, last_good, rail_file)
        numbers = await asyncio.to_thread(_numbers, settings)
        publisher = Publisher(
            status=board.current(),
            publish=board.publish,
            clock=clock,
            chronicle=chronicle,
            drifts=Drifts(journal, clock),
            inventory=lambda: engines.inventory,
        )
        attempts = AttemptsFile(settings.data_dir / REVISIONS, hold_folder)
        revisions = Revisions(attempts, journal, clock)
        await revisions.open()
        backends.custody.watch(attempts, *([numbers] if numbers is not None else []))
        keeping = Keeping(cache)
        pardons = Pardons(
            commands=commands,
            mendings=mendings,
            comparisons=comparisons,
            pushes=pushes,
            offers=offers,
            reverts=reverts,
            archive=archive,
            inventory=lambda: engines.inventory,
            chronicle=chronicle,
        )
        reconciler = Reconciler(
            intent=intent,
            deliberation=Deliberation(
                observer=Observer(
                    cache=cache,
                    engines=engines,
                    backends=backends,
                    effects=effects,
                    memory=MemoryWatch(clock=clock.monotonic),
                    environment=settings.environment,
                    hung=liveness.hung,
                    hints=hints.told,
                    offers=offers.told,
                ),
                fallbacks=Fallbacks(lambda: engines.inventory),
                reverts=reverts,
                books=books,
                gpus=GpuLedger(
                    watch,
                    settings.environment,
                    engines.can_run,
                    settings.gpu_mode,
                    lambda: engines.inventory,
                    numbers,
                ),
                surges=Surges(),
                families=backends.families,
                max_parallel_loads=settings.max_parallel_loads,
                maintenance=rails.maintenance,
            ),
            drifts=LaunchDrifts(engines, settings.environment),
            archive=archive,
            keeping=keeping,
            inquiries=Inquiries(
                comparisons=comparisons,
                mendings=mendings,
                hints=hints,
                offers=offers,
                pushes=pushes,
            ),
            pardons=pardons,
            backends=backends,
            effects=effects,
            clock=clock,
            publisher=publisher,
            chronicle=chronicle,
            troubles=Troubles(journal, books),
            revisions=revisions,
            metrics=metrics,
            show_plan=board.show_plan,
            rails=rails,
            wakeup=wakeup,
        )
        rehearsals = Rehearsals(
            loop=reconciler,
            intent=intent,
            hub=Hub(offer=offers.ask_once, hint=hints.ask_once),
            keeping=keeping,
            pardons=pardons,
            rails=rails,
            clock=clock,
            status=board.current,
        )
        upstream, visits = Upstream(), Visits()
        yield Parts(
            app=create_app(
                board,
                traffic=traffic,
                metrics=metrics,
                pages=pages,
                management=Management(
                    commands=commands,
                    orders=orders,
                    plans=board,
                    rehearsals=rehearsals,
                    logs=Logs(settings.data_dir / "logs", backends.api_keys),
                    journal=journal,
                    attempts=lambda: revisions.attempts,
                    ending=closed,
                ),
                push_hook=make_push_hook(settings, source),
                downloads=Downloads(imports, hub=bool(settings.hub.location)),
                hub=hub_models,
                bounds=bounds_of(settings),
                pulse=publisher.pulse,
                upstream=upstream,
                cluster=cluster,
                visits=visits,
                engines=engine_loads,
            ),
            upstream=upstream,
            visits=visits,
            closed=closed,
            journal=journal,
            source=source,
            intent=intent,
            rails=rails,
            backends=backends,
            stopper=stopper,
            effects=effects,
            publisher=publisher,
            tokens=tokens,
            liveness=liveness,
            reconciler=reconciler,
            rehearsals=rehearsals,
            collections=FullCollections(
                busy=lambda: bool(traffic.total or visits.passing()),
                news=partial(news_of, intent, backends),
                clock=clock.monotonic,
                count=metrics.count_full_collection,
            ),
        )


def _numbers(settings: Settings) -> GpuNumbers | None:
    """A device plugin gives others at each start, so their numbers mean nothing then."""
    lasting = settings.gpu_mode is GpuMode.NODE
    return GpuNumbers(settings.data_dir / GPU_NUMBERS) if lasting else None


def _look_again(source: ManifestSource, watch: GpuWatch) -> asyncio.Event:
    """What an operator asks for; the event is that of the source, no library is waited for."""
    watch.ask_again()
    return source.look_again()


def _stall(intent: Intent, name: ModelName) -> float | None:
    desired = intent.understanding.desired
    models = desired.models if desired is not None else ()
    return next((model.timeouts.stall for model in models if model.name == name), None)


def _writer(settings: Settings) -> WritableHub | None:
    location = settings.hub.location
    return make_writer(settings.hub, location) if location else None
