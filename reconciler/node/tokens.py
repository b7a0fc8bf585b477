"""Counts the tokens of each model by what its engines say, beside the loop and never in it."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from reconciler.apply.backends import BackendView
from reconciler.metrics import Metrics, TokenKind
from reconciler.node.engine_loads import EngineLoads
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.progress import Progress, Untold, read_progress
from reconciler.plan.ids import Nonce
from reconciler.proxy.inflight import Traffic

_log = structlog.get_logger("xgen.node")

LOOK_SECONDS = 10.0
LOOK_SECONDS_WITH_PEERS = 2.0
"""They send their requests by what the engines' queues and caches were lately."""


@dataclass(slots=True)
class _Spawn:
    """What was read of one process. `worked`: it had requests when it was looked at last; so it
    is looked at once more, for what engines count late. `counted`: None: what it had counted before
    this agent is not known yet."""

    counted: dict[TokenKind, int] | None
    requests: float = 0
    worked: bool = True
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class TokenCount:
    """Also the `apply.stop.Traffic` of whoever stops backends: idle is who was counted, too.

    `loads`: is told what each look says of the engine's load.
    """

    def __init__(
        self,
        *,
        live: Callable[[], Iterable[BackendView]],
        traffic: Traffic,
        pages: EnginePages,
        metrics: Metrics,
        loads: EngineLoads,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._loads = loads
        self._look_seconds = look_seconds
        self._live = live
        self._traffic = traffic
        self._pages = pages
        self._metrics = metrics
        self._spawns: dict[Nonce, _Spawn] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # noqa: BLE001  the boundary of the task: the next look may do better
                _log.exception("counting tokens failed")
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Ask every loaded backend that had requests since it was asked last, all at once."""
        live = tuple(self._live())
        nonces = {view.nonce for view in live}
        for gone in self._spawns.keys() - nonces:
            del self._spawns[gone]
        self._loads.keep_only(nonces)
        async with asyncio.TaskGroup() as group:
            for view in live:
                group.create_task(self._look_at(view), name=f"tokens:{view.model}")

    def in_flight(self, nonce: Nonce) -> int:
        return self._traffic.in_flight(nonce)

    async def wait_idle(self, nonce: Nonce) -> None:
        """Return once nothing is in flight at this process, and what it did is counted."""
        await self._traffic.wait_idle(nonce)
        for view in self._live():
            if view.nonce == nonce:
                await self._look_at(view)

    async def catch_up(self, view: BackendView) -> None:
        """Count what others have asked, before a probe of ours: also what is counted late."""
        for _ in range(2):
            await self._look_at(view)

    async def leave_out(self, view: BackendView) -> None:
        """What its engine has counted since it was looked at last is a probe's of ours, and not
        counted; unless anybody else asked meanwhile."""
        spawn = self._spawn(view)
        async with spawn.reading:
            if self._is_due(view, spawn):
                spawn.worked = True
                return
            progress = await read_progress(self._pages, view.launch)
            if isinstance(progress, Progress) and not self._is_due(view, spawn):
                spawn.counted = {kind: total or 0 for kind, total in _totals(progress).items()}

    async def _look_at(self, view: BackendView) -> None:
        if view.loaded_at is None or view.stopping or view.launch.counters.metrics_path is None:
            return
        spawn = self._spawn(view)
        async with spawn.reading:  # an older page must not come after a newer one
            if not self._is_due(view, spawn):
                return
            match await read_progress(self._pages, view.launch):
                case Untold(reason=reason):  # what it counts meanwhile is there the next time
                    _log.debug("tokens are not counted now", model=view.model, cause=reason)
                    self._loads.take(view, None)
                case Progress() as progress:
                    self._count(view, spawn, progress)
                    self._loads.take(view, progress)

    def _spawn(self, view: BackendView) -> _Spawn:
        """Of one that is loaded."""
        if view.nonce not in self._spawns:
            self._spawns[view.nonce] = _Spawn(counted=_counted_before(view))
        return self._spawns[view.nonce]

    def _is_due(self, view: BackendView, spawn: _Spawn) -> bool:
        ended = self._metrics.requests_of(view.model)
        works = self._traffic.in_flight(view.nonce) > 0 or ended != spawn.requests
        due = works or spawn.worked
        spawn.requests, spawn.worked = ended, works
        return due

    def _count(self, view: BackendView, spawn: _Spawn, progress: Progress) -> None:
        if spawn.counted is None:
            spawn.counted = {kind: total or 0 for kind, total in _totals(progress).items()}
            return
        for kind, total in _totals(progress).items():
            if total is None:
                continue
            before = spawn.counted[kind]
            # Less than before: the engine began anew within its process.
            self._metrics.count_tokens(
                view.model, kind, total - before if total >= before else total
            )
            spawn.counted[kind] = total


def _counted_before(view: BackendView) -> dict[TokenKind, int] | None:
    """Tokens that were an earlier agent's to count."""
    if view.adopted is None:
        return dict.fromkeys(TokenKind, 0)
    if view.counted is None:
        return None
    return {kind: total or 0 for kind, total in _totals(view.counted).items()}


def _totals(progress: Progress) -> dict[TokenKind, int | None]:
    return {
        TokenKind.PROMPT: progress.prompt_tokens,
        TokenKind.GENERATED: progress.generated_tokens,
    }
