"""One agent: its parts are made and wired here, run together, and ended in order."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from reconciler import __version__
from reconciler.apply.backends import Backends
from reconciler.apply.effects import Effects
from reconciler.apply.stop import Stopper
from reconciler.backend.builds import discover
from reconciler.backend.engines import Engines
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Rejected
from reconciler.loop.intent import Intent
from reconciler.loop.publisher import Publisher
from reconciler.loop.reconciler import Reconciler
from reconciler.node.clock import SystemClock
from reconciler.node.data_folder import DataFolder
from reconciler.node.hub import make_store
from reconciler.node.shutdown import Shutdown, stop_all
from reconciler.plan.desired import Timeouts
from reconciler.plan.ids import ModelName, NodeName
from reconciler.proxy.app import create_app
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.server import serve
from reconciler.settings import Settings
from reconciler.source.directory import DirectorySource
from reconciler.source.last_good import LastGood
from reconciler.status import Status

_log = structlog.get_logger("xgen.node")


class Board:
    """Holds the newest status; the loop writes it, the HTTP side reads it."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._changed = asyncio.Event()

    def current(self) -> Status:
        return self._status

    def publish(self, status: Status) -> None:
        self._status = status
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer_than(self, version: int) -> Status:
        """The first status with a later version; waits for it."""
        while self._status.version <= version:
            await self._changed.wait()
        return self._status


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """What is known once the agent answers."""

    url: str
    node: NodeName
    board: Board


async def run_agent(
    settings: Settings, shutdown: Shutdown, *, on_up: Callable[[Up], None] | None = None
) -> int:
    """Run one agent until `shutdown` begins. Returns the exit code: 1 if anything survives.

    Raises Rejected when it cannot start at all (data folder, node name, address).
    """
    with DataFolder(settings.data_dir) as folder:
        node = folder.settle_name(
            settings.node, host=settings.host_name, rename_from=settings.rename_node
        )
        with contextlib.closing(_bind(settings)) as listener:
            url = _url(listener)
            folder.announce(url)
            _log.info("agent starts", node=node, url=url, manifest=settings.manifest)
            return await _run(settings, node, listener, url, shutdown, on_up)


async def _run(
    settings: Settings,
    node: NodeName,
    listener: socket.socket,
    url: str,
    shutdown: Shutdown,
    on_up: Callable[[Up], None] | None,
) -> int:
    board = Board(
        Status(
            node=node,
            pod_name=settings.pod_name,
            pod_ip=settings.pod_ip,
            agent_version=__version__,
        )
    )
    wakeup = asyncio.Event()
    traffic = Traffic()
    clock = SystemClock()
    intent = Intent(node=node, last_good=LastGood(settings.data_dir / "last-good"), wake=wakeup.set)
    await intent.open()
    engines = Engines(
        await asyncio.to_thread(
            discover,
            llama_server=settings.llama_server,
            search_path=settings.environment.get("PATH", ""),
            python=sys.executable,
        )
    )
    store = make_store(settings.hub)
    cache = ModelCache(settings.models_dir, store)
    await asyncio.to_thread(cache.open)
    async with contextlib.AsyncExitStack() as stack:
        backends = await stack.enter_async_context(_backends(settings, node, clock, wakeup))
        stopper = Stopper(backends, traffic, shutdown.hurry)
        effects = await stack.enter_async_context(
            Effects(
                cache=cache,
                backends=backends,
                engines=engines,
                stopper=stopper,
                clock=clock.monotonic,
                wake=wakeup.set,
                environment=settings.environment,
            )
        )
        publisher = Publisher(status=board.current(), publish=board.publish, clock=clock)
        reconciler = Reconciler(
            intent=intent,
            cache=cache,
            engines=engines,
            backends=backends,
            effects=effects,
            clock=clock,
            publisher=publisher,
            max_parallel_loads=settings.max_parallel_loads,
            wakeup=wakeup,
        )
        source = DirectorySource(Path(settings.manifest), poll_seconds=settings.poll_interval)
        app = create_app(board, traffic=traffic)
        closed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(app, listener, stop=closed), name="http")
            following = tasks.create_task(_follow(source, intent), name="source")
            ticking = tasks.create_task(reconciler.run(), name="loop")
            if on_up:
                on_up(Up(url=url, node=node, board=board))
            await shutdown.begun.wait()
            reconciler.close()
            await ticking
            publisher.drain()
            survivors = await stop_all(backends, effects, stopper, _timeouts(intent))
            following.cancel()
            closed.set()
            await serving
    _log.info("agent ended", survivors=len(survivors))
    return 1 if survivors else 0


@contextlib.asynccontextmanager
async def _backends(
    settings: Settings, node: NodeName, clock: SystemClock, wakeup: asyncio.Event
) -> AsyncIterator[Backends]:
    backends = Backends(
        data_dir=settings.data_dir,
        node=node,
        clock=clock.monotonic,
        wake=wakeup.set,
        ports=settings.ports,
        log_max_bytes=settings.log_max_bytes,
    )
    await backends.open()
    try:
        yield backends
    finally:
        await backends.close()


async def _follow(source: DirectorySource, intent: Intent) -> None:
    async with contextlib.aclosing(source.snapshots()) as snapshots:
        async for snapshot in snapshots:
            intent.offer(snapshot, source.notices)


def _timeouts(intent: Intent) -> dict[ModelName, Timeouts]:
    desired = intent.understanding.desired
    return {model.name: model.timeouts for model in desired.models} if desired else {}


def _bind(settings: Settings) -> socket.socket:
    host, port = settings.listen_host, settings.listen_port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as exc:
        listener.close()
        raise Rejected(
            f"cannot listen on {host}:{port}: {exc.strerror or exc}; choose another with --listen"
        ) from exc
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
