"""One agent, from its start to its proven end."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from structlog.contextvars import bind_contextvars

from reconciler import __version__
from reconciler.errors import Rejected
from reconciler.events import EventKind
from reconciler.loop.clock import Clock
from reconciler.loop.intent import Intent
from reconciler.manifest.policy import Permissions
from reconciler.node.board import Board
from reconciler.node.data_folder import DataFolder
from reconciler.node.parts import Parts, assembled
from reconciler.node.shutdown import Shutdown, stop_all
from reconciler.plan.desired import Timeouts
from reconciler.plan.ids import ModelName, NodeName
from reconciler.proxy.server import serve
from reconciler.settings import Settings
from reconciler.source.directory import DirectorySource
from reconciler.status import Status

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
) -> int:
    """Run one agent until `shutdown` begins. Returns the exit code: 1 if anything survives.

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
                gpu_mode=settings.gpu_mode,
            )
        )
        with contextlib.closing(_bind(settings)) as listener:
            up = Up(url=_url(listener), node=node, board=board)
            folder.announce(up.url)
            bind_contextvars(node=node)
            async with assembled(settings, node, board, shutdown.hurry, clock) as parts:
                parts.journal.record(
                    EventKind.AGENT_STARTED,
                    f"xgen-model {__version__} answers at {up.url}"
                    f"{_allowing(settings.permissions)}",
                    url=up.url,
                    manifest=settings.manifest,
                )
                folder.remember_name(node)
                _set_apart_what_stays()
                if on_up:
                    on_up(up)
                survivors = await _run(parts, listener, shutdown)
    _log.info("agent ended", survivors=survivors)
    return 1 if survivors else 0


def _set_apart_what_stays() -> None:
    """A full collection walks everything that was ever imported, and nothing is served meanwhile:
    some 50 ms, whichever thread it falls upon."""
    gc.collect()
    gc.freeze()


async def _run(parts: Parts, listener: socket.socket, shutdown: Shutdown) -> list[str]:
    """Run the parts together until the end begins, and end them in order (R10)."""
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve(parts.app, listener, stop=parts.closed), name="http")
        following = tasks.create_task(_follow(parts.source, parts.intent), name="source")
        ticking = tasks.create_task(parts.reconciler.run(), name="loop")
        counting = tasks.create_task(parts.tokens.run(), name="tokens")
        watching = tasks.create_task(parts.liveness.run(), name="liveness")
        await shutdown.begun.wait()
        parts.journal.record(
            EventKind.AGENT_ENDING, f"{shutdown.cause}: new work is refused, backends are stopped"
        )
        parts.reconciler.end()
        survivors = await stop_all(
            parts.backends, parts.effects, parts.stopper, _timeouts(parts.intent)
        )
        parts.reconciler.close()
        await ticking
        following.cancel()
        counting.cancel()
        watching.cancel()
        parts.closed.set()
        await serving
    return survivors


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
