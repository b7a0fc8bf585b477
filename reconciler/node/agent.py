"""One agent, from its start to its proven end."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog
from structlog.contextvars import bind_contextvars

from reconciler import __version__
from reconciler.apply.backends import BackendView
from reconciler.errors import Rejected
from reconciler.events import EventKind, Journal, Level
from reconciler.loop.clock import Clock
from reconciler.loop.intent import Intent
from reconciler.loop.leaving import Stays, every_stays, none_stays, suspended_stay
from reconciler.manifest.policy import Permissions
from reconciler.node.announcement import words_of
from reconciler.node.board import Board
from reconciler.node.clock import SystemClock
from reconciler.node.cluster import Cluster, open_cluster
from reconciler.node.data_folder import DataFolder
from reconciler.node.manifest_news import tell_of_manifest
from reconciler.node.parts import Parts, assembled
from reconciler.node.reporting import Reporting
from reconciler.node.service_manager import ServiceManager
from reconciler.node.shutdown import Shutdown, leave_all, let_through, stop_all, why_not_left
from reconciler.plan.desired import Timeouts
from reconciler.plan.ending import OnExit
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.observed import Leftover
from reconciler.plan.peering import Address
from reconciler.plan.peering_doubts import doubts
from reconciler.proxy.server import serve
from reconciler.pulse import Beat
from reconciler.settings import Settings
from reconciler.source.manifest_source import ManifestSource
from reconciler.status import JUST_STARTED, AgentStatus, Status

_log = structlog.get_logger("xgen.node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """What is known once the agent answers."""

    url: str
    node: NodeName
    board: Board


async def run_agent(
    settings: Settings,
    shutdown: Shutdown,
    *,
    clock: Clock | None = None,
    on_up: Callable[[Up], None] | None = None,
    manager: ServiceManager | None = None,
) -> int:
    """Run one agent until `shutdown` begins. Returns the exit code: 1 if anything survives.

    `manager`: who is told of it; None: nobody has asked.

    Raises Rejected when it cannot start at all (data folder, node name, address, hub).
    """
    with DataFolder(settings.data_dir) as folder:
        node = folder.settle_name(
            settings.node, host=settings.host_name, rename_from=settings.rename_node
        )
        board = Board(
            Status(
                node=node,
                pod_name=settings.pod_name,
                pod_ip=settings.pod_ip,
                agent_version=__version__,
                agent=_agent_status(settings),
                gpu_mode=settings.gpu_mode,
                unknown_because=JUST_STARTED,
            )
        )
        with contextlib.closing(_bind(settings)) as listener:
            up = Up(url=_url(listener), node=node, board=board)
            folder.announce(up.url, words_of(settings))
            bind_contextvars(node=node)
            clock = clock or SystemClock()
            async with (
                open_cluster(settings, clock, listener.getsockname()[:2], board.current) as cluster,
                assembled(
                    settings,
                    node,
                    board,
                    shutdown.hurry,
                    clock=clock,
                    cluster=cluster.side,
                    hold_folder=folder.hold,
                ) as parts,
            ):
                if shutdown.begun.is_set():  # it is no node's agent: `xgen-model stop`
                    _log.info("stopping what is left", data_dir=str(settings.data_dir))
                else:
                    _tell_of_the_start(settings, parts.journal, up)
                    folder.remember_name(node)
                if on_up:
                    on_up(up)
                async with _reported(manager, parts, board, listener, shutdown):
                    survivors = await _run(parts, cluster, listener, shutdown, settings)
    _log.info("agent ended", survivors=survivors)
    return 1 if survivors else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observed:
    """What a service manager is told of."""

    beat: Callable[[], Beat]
    status: Callable[[], Status]
    listener: socket.socket

    def answers(self) -> bool:
        listener = self.listener
        is_open = listener.fileno() != -1
        return is_open and bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@contextlib.asynccontextmanager
async def _reported(
    manager: ServiceManager | None,
    parts: Parts,
    board: Board,
    listener: socket.socket,
    shutdown: Shutdown,
) -> AsyncIterator[None]:
    """Tell the service manager, if there is one, of all that happens inside."""
    if manager is None:
        yield
        return
    seen = _Observed(beat=parts.publisher.pulse.beat, status=board.current, listener=listener)
    now = asyncio.get_running_loop().time
    reporting = Reporting(manager, seen, ending=shutdown.begun, now=now)
    task = asyncio.create_task(reporting.run(), name="reporting")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _agent_status(settings: Settings) -> AgentStatus:
    problem = None
    if settings.on_exit is OnExit.LEAVE:
        problem = why_not_left(supervised=settings.supervision is not None)
    return AgentStatus(
        pid=os.getpid(),
        on_exit=settings.on_exit,
        on_exit_problem=problem,
        supervision=settings.supervision,
    )


def _tell_of_the_start(settings: Settings, journal: Journal, up: Up) -> None:
    agent = up.board.current().agent
    crash = agent.supervision.crash if agent and agent.supervision else None
    journal.record(
        EventKind.AGENT_STARTED,
        f"xgen-model {__version__} answers at {up.url}{_allowing(settings.permissions)}"
        + (f"; started anew after a crash: {crash}" if crash else ""),
        level=Level.WARNING if crash else Level.INFO,
        url=up.url,
        manifest=settings.manifest,
        crash=crash,
    )
    if agent and agent.on_exit_problem:
        _log.warning("on-exit leave cannot work", reason=agent.on_exit_problem)
    if settings.peers is not None:
        listen = Address(host=settings.listen_host, port=settings.listen_port)
        for doubt in doubts(settings.peers, listen):
            _log.warning(
                "peers and listen do not fit together", reason=f"{doubt.said}; {doubt.step}"
            )


async def _run(
    parts: Parts,
    cluster: Cluster,
    listener: socket.socket,
    shutdown: Shutdown,
    settings: Settings,
) -> list[str]:
    """Run the parts together until the end begins, and end them in order (R10)."""
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(
            serve(parts.app, listener, stop=parts.closed, let_go=parts.upstream.close), name="http"
        )
        following = tasks.create_task(_follow(parts.source, parts.intent), name="source")
        telling = tasks.create_task(tell_of_manifest(parts.source, parts.journal), name="news")
        ticking = tasks.create_task(parts.reconciler.run(), name="loop")
        counting = tasks.create_task(parts.tokens.run(), name="tokens")
        watching = tasks.create_task(parts.liveness.run(), name="liveness")
        meeting = tasks.create_task(
            cluster.run(parts.journal, parts.upstream.give_up), name="cluster"
        )
        collecting = tasks.create_task(parts.collections.run(), name="collections")
        await shutdown.begun.wait()
        stays, fate = _stays(parts, settings)
        parts.journal.record(
            EventKind.AGENT_ENDING, f"{shutdown.cause}: new work is refused, backends are {fate}"
        )
        parts.reconciler.end(stays)
        ended = asyncio.Event()
        passing = tasks.create_task(
            let_through(parts.visits, shutdown.hurry, parts.reconciler.refuse, ended),
            name="passing",
        )
        survivors = await _end_backends(parts, stays)
        ended.set()
        await passing
        parts.reconciler.close()
        await ticking
        following.cancel()
        telling.cancel()
        counting.cancel()
        watching.cancel()
        meeting.cancel()
        collecting.cancel()
        parts.closed.set()
        cutting = tasks.create_task(_cut(serving, shutdown), name="cut")
        await asyncio.wait((serving,))
        cutting.cancel()
    return survivors


def _stays(parts: Parts, settings: Settings) -> tuple[Stays, str]:
    """Which models are left running, and what becomes of all of them, in words."""
    if settings.on_exit is OnExit.LEAVE:
        return every_stays, "left running"
    if settings.on_exit is OnExit.STOP:
        return none_stays, "stopped"
    stays = suspended_stay(parts.intent.in_effect(), parts.rails.suspensions)
    there: list[BackendView | Leftover] = [*parts.backends.live(), *parts.backends.leftovers()]
    kept = ", ".join(sorted({each.model for each in there if stays(each.model) is not None}))
    if not kept:
        return stays, "stopped"
    why_not = why_not_left(supervised=settings.supervision is not None)
    if why_not is not None:  # in order, then, rather than by the kernel
        return none_stays, f"stopped, suspended ones ({kept}) too: {why_not}"
    return stays, f"stopped, but for suspended ones, which are left running: {kept}"


async def _end_backends(parts: Parts, stays: Stays) -> list[str]:
    """Stop or leave them. Returns what survives a stop, in words."""
    doing = (parts.backends, parts.effects, parts.stopper, _timeouts(parts.intent))
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(stop_all(*doing, lambda each: stays(each) is None))
        leaving = group.create_task(leave_all(*doing, lambda each: stays(each) is not None))
    for left in leaving.result():
        parts.journal.record(
            EventKind.BACKEND_LEFT,
            f"left running for the next agent{stays(left.model)}{_how_far(left)}",
            model=left.model,
            pid=left.pid,
        )
    return stopping.result()


def _how_far(left: BackendView | Leftover) -> str:
    if isinstance(left, Leftover) or left.stopping:
        return ", which is to stop it"
    return "; it is loaded" if left.loaded_at is not None else "; it still loads"


async def _cut(serving: asyncio.Task[None], shutdown: Shutdown) -> None:
    """Who kills does not wait for the last answers either."""
    await shutdown.hurry.killing.wait()
    serving.cancel()


async def _follow(source: ManifestSource, intent: Intent) -> None:
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
    """As it is reached from this node."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _allowing(permissions: Permissions) -> str:
    names = sorted(permissions.flags | permissions.variables)
    may_set = f"; manifests may set {', '.join(names)}" if names else ""
    roots = ", ".join(map(str, permissions.file_roots))
    return may_set + (f"; file:// may lead below {roots}" if roots else "")
