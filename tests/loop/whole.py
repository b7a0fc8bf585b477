"""A whole loop on a machine of GPUs, whose effects succeed at once; the rest is the agent's own."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from reconciler.apply.attempts import AttemptsFile
from reconciler.apply.comparisons import Comparisons
from reconciler.apply.histories import Histories
from reconciler.apply.mendings import Mendings
from reconciler.apply.pushes import Pushes
from reconciler.apply.rail_notes import RailFile
from reconciler.apply.stop import Hurry, Stopper
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import Build, Inventory
from reconciler.backend.offer import HubSays
from reconciler.cache.beside import gguf_hint
from reconciler.cache.model_cache import ModelCache
from reconciler.events import Journal
from reconciler.hub.push import Order, push
from reconciler.loop.archive import Archive
from reconciler.loop.books import Books
from reconciler.loop.chronicle import Chronicle
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
from reconciler.node.board import Board
from reconciler.node.describe import describe
from reconciler.node.hub import make_store, make_writer
from reconciler.node.offers import offer_of
from reconciler.plan.actions import Action
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import Nonce
from reconciler.plan.memory import Room
from reconciler.settings import HubSettings
from reconciler.source.last_good import LastGood
from reconciler.source.snapshot import Snapshot, SourceFile
from reconciler.status import Status
from tests.loop.delayed import Delayed
from tests.loop.instant import NODE, TICK_SECONDS, Asked, Clock, Machine, Spawned


class Node:
    """`parts`: what a test looks into."""

    def __init__(self, folder: Path, devices: tuple[Gpu, ...], builds: tuple[Build, ...]) -> None:
        self.folder, self.hub = folder, folder / "hub"
        self.hub.mkdir()
        self.clock, wake = Clock(), asyncio.Event().set
        self.journal = Journal(node=NODE, now=lambda: self.clock.wall(self.clock.now))
        self.board = Board(Status(node=NODE))
        chronicle, metrics = Chronicle(self.journal), Metrics(node=NODE)
        self._writer = make_writer(HubSettings(location=str(self.hub)), str(self.hub))
        store = make_store(HubSettings(location=str(self.hub)))
        self.cache = ModelCache(folder / "models", store)
        self.cache.open()
        engines = Engines(Inventory(builds=builds))
        self.machine = Machine(devices, self.clock, engines)
        backends = Spawned(
            data_dir=folder, node=NODE, clock=self.clock.monotonic, wake=wake,
            ports=range(1), log_max_bytes=1,
        )  # fmt: skip
        backends.views = self.machine.views
        self.effects = Delayed(
            cache=self.cache, backends=backends, engines=engines,
            stopper=Stopper(backends, _NoTokens(), Hurry()), clock=self.clock.monotonic, wake=wake,
            environment={},
        )  # fmt: skip
        self.effects.machine = self.machine
        rails = Rails(
            RailFile(folder), Orders(wake=wake, look_again=asyncio.Event), clock=self.clock,
            journal=self.journal,
        )  # fmt: skip
        self.intent = Intent(
            node=NODE, last_good=LastGood(folder / "last-good"), wake=wake, journal=self.journal,
            rails=rails,
        )  # fmt: skip
        offers = Asked(
            "offers", store, partial(offer_of, self._writer), silence=HubSays(), wake=wake
        )
        hints = Asked("hints", store, gguf_hint, wake=wake)
        comparisons, pushes = Comparisons(self.cache, wake=wake), Pushes(self.cache, wake=wake)
        mendings = Mendings(self.cache, wake=wake)
        reverts = Reverts(self.cache.lookup, lambda: engines.inventory)
        books = Books()
        archive = Archive(
            Histories(folder / "history"), "boot", lambda: engines.inventory, self.clock
        )
        pardons = Pardons(
            commands=Commands(wake=wake, look_again=asyncio.Event), mendings=mendings,
            comparisons=comparisons, pushes=pushes, offers=offers, reverts=reverts,
            archive=archive, inventory=lambda: engines.inventory, chronicle=chronicle,
        )  # fmt: skip
        self.ledger = GpuLedger(self.machine, {}, engines.can_run, builds=lambda: engines.inventory)
        keeping = Keeping(self.cache)
        inquiries = Inquiries(
            comparisons=comparisons, mendings=mendings, hints=hints, offers=offers, pushes=pushes
        )
        attempts = AttemptsFile(folder / "revisions.json", lambda: None)
        self.revisions = Revisions(attempts, self.journal, self.clock)
        self.reconciler = Reconciler(
            intent=self.intent,
            rails=rails,
            deliberation=Deliberation(
                observer=Observer(
                    cache=self.cache, engines=engines, backends=backends, effects=self.effects,
                    memory=MemoryWatch(clock=self.clock.monotonic, read=_plenty), environment={},
                    hung=dict, hints=hints.told, offers=offers.told,
                ),
                fallbacks=Fallbacks(lambda: engines.inventory),
                reverts=reverts,
                books=books,
                gpus=self.ledger,
                surges=Surges(),
                families=backends.families,
                max_parallel_loads=2,
                maintenance=rails.maintenance,
            ),
            drifts=LaunchDrifts(engines, {}),
            archive=archive,
            keeping=keeping,
            inquiries=inquiries,
            revisions=self.revisions,
            pardons=pardons,
            backends=backends,
            effects=self.effects,
            clock=self.clock,
            publisher=Publisher(
                status=self.board.current(), publish=self.board.publish, clock=self.clock,
                chronicle=chronicle, drifts=Drifts(self.journal, self.clock),
                inventory=lambda: engines.inventory,
            ),
            chronicle=chronicle,
            troubles=Troubles(self.journal, books),
            metrics=metrics,
            show_plan=self.board.show_plan,
            wakeup=asyncio.Event(),
        )  # fmt: skip
        self.rehearsals = Rehearsals(
            loop=self.reconciler, intent=self.intent,
            hub=Hub(offer=offers.ask_once, hint=hints.ask_once), keeping=keeping, pardons=pardons,
            rails=rails, clock=self.clock, status=self.board.current,
        )  # fmt: skip
        self._inquiries = inquiries
        self._revisions = itertools.count(1)

    def push(self, source: str, content: bytes) -> None:
        """One GGUF, with a catalog that says what is in it."""
        folder = self.folder / "pushed" / source
        folder.mkdir(parents=True)
        (folder / "model.gguf").write_bytes(content)
        order = Order(
            folder=folder,
            prefix=source,
            pushed_at="2026-11-30T12:00:00Z",
            check_names=lambda _names, _where: None,
            describe=lambda files: describe(files, source),
            check_content=lambda _hashed: None,
        )
        push(self._writer, order, _Silent())

    def take_up(self, text: str) -> None:
        """The whole manifest, from the next tick on."""
        content = text.encode()
        file = SourceFile(name="models.yaml", content=content)
        revision = f"r{next(self._revisions)}"
        self.intent.offer(Snapshot(location="here", revision=revision, files=(file,)))

    async def close(self) -> None:
        await self._inquiries.close()

    async def until_at_rest(self, quiet: int = 3) -> tuple[Action, ...]:
        """All that was begun, in its order."""
        self.machine.begun.clear()
        still = 0
        while still < quiet:
            known = len(self.machine.begun)
            await self.reconciler.tick()
            self.clock.now += TICK_SECONDS
            under_way = self.effects.pass_time(self.clock.now)
            still = 0 if under_way or len(self.machine.begun) > known else still + 1
            assert len(self.machine.begun) < 1000, "it does not come to rest"
        return tuple(self.machine.begun)


@asynccontextmanager
async def node_of(
    folder: Path, devices: tuple[Gpu, ...], builds: tuple[Build, ...]
) -> AsyncIterator[Node]:
    made = Node(folder, devices, builds)
    await made.revisions.open()
    await made.intent.open()
    try:
        yield made
    finally:
        await made.close()


class _Silent:
    def begin(self, doing: str, size_bytes: int) -> None: ...
    def advance(self, size_bytes: int) -> None: ...


class _NoTokens:
    """Nobody is served."""

    def in_flight(self, nonce: Nonce) -> int:
        return 0

    async def wait_idle(self, nonce: Nonce) -> None:
        return


def _plenty() -> Room:
    """More than a machine could have, so that only GPUs are ever too small."""
    return Room(total_bytes=2**60, free_bytes=2**59)
