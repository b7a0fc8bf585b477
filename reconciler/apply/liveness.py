"""Watches loaded backends for one that does nothing any more though something is owed (design §8).

Busy is not hung: a verdict needs `timeouts.stall` without any sign of progress, and then a probe of
one token that gets no answer. gpustack#3189: probes queued behind users. So where anything is in
flight there is no other probe; and where nothing is, one only after a while without any answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import aiohttp
import structlog

from reconciler.apply.held import BackendView
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.liveness import Sight, after, first, standstill
from reconciler.observe.processes import cpu_seconds
from reconciler.observe.progress import Progress, Untold, read_progress
from reconciler.observe.readiness import question
from reconciler.plan.desired import ModelType
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.observed import Hang

_log = structlog.get_logger("xgen.liveness")

LOOK_SECONDS = 10.0
"""Between two looks at one process; less for a short `stall`, which has several looks in it."""
PROBE_SECONDS = 30.0
"""For the answer that decides; a short `stall` is the limit, too."""
PAGE_SECONDS = 60.0
"""For the counts: llama.cpp tells them between two batches, and one may take its time."""
SETTLE_SECONDS = 1.0
"""Between two looks at which processes there are."""
_LOOKS = 6
"""In one `stall` at least."""
_QUIET = 1 / 3
"""Of `stall`, without any progress: then an idle backend is probed."""


class Traffic(Protocol):
    """What the proxy knows of one process: see `proxy.inflight`."""

    def in_flight(self, nonce: Nonce) -> int: ...
    def awaited(self, nonce: Nonce) -> int: ...
    def relayed_bytes(self, nonce: Nonce) -> int: ...
    def keep_only(self, nonces: Collection[Nonce]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendHung:
    """`stalled_seconds`: something was owed for so long since its last progress."""

    model: ModelName
    pid: int
    reason: str
    stalled_seconds: float
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every watch is given.

    `stall_of`: the model's `timeouts.stall`; None: nobody wants it any more. `families`: the pids
    of each backend. `probing`, `probed`: told before each probe of an idle backend, and after one
    that was answered.
    `report`: told of each verdict.
    """

    traffic: Traffic
    pages: EnginePages
    stall_of: Callable[[ModelName], float | None]
    families: Callable[[], Mapping[Nonce, Sequence[int]]]
    clock: Callable[[], float]
    wake: Callable[[], None]
    probing: Callable[[BackendView], Awaitable[None]]
    probed: Callable[[BackendView], Awaitable[None]]
    report: Callable[[BackendHung], None]


class Liveness:
    """Watches while `run` does. `live`: all backends; those without counters are left alone."""

    def __init__(
        self, live: Callable[[], Iterable[BackendView]], surroundings: Surroundings
    ) -> None:
        self._live = live
        self._surroundings = surroundings
        self._watches: dict[Nonce, tuple[_Watch, asyncio.Task[None]]] = {}

    def hung(self) -> Mapping[Nonce, Hang]:
        found = {nonce: watch.hang for nonce, (watch, _) in self._watches.items()}
        return {nonce: hang for nonce, hang in found.items() if hang is not None}

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            asyncio.TaskGroup() as group,
        ):
            while True:
                self._settle(session, group)
                await asyncio.sleep(SETTLE_SECONDS)

    def _settle(self, session: aiohttp.ClientSession, group: asyncio.TaskGroup) -> None:
        """One watch for each process that can be watched."""
        live = {view.nonce: view for view in self._live()}
        self._surroundings.traffic.keep_only(live)
        for nonce, view in live.items():
            if nonce not in self._watches and _can_be_watched(view):
                watch = _Watch(view, session, self._surroundings)
                task = group.create_task(watch.run(), name=f"liveness:{view.model}")
                self._watches[nonce] = (watch, task)
        for nonce in tuple(self._watches):
            if nonce not in live or live[nonce].stopping:
                self._watches.pop(nonce)[1].cancel()


def _can_be_watched(view: BackendView) -> bool:
    counts = view.launch.counters.metrics_path is not None
    return counts and view.loaded_at is not None and not view.stopping


class _Watch:
    """Of one process, from its load on. `hang`: the verdict, for as long as it stands."""

    def __init__(
        self, view: BackendView, session: aiohttp.ClientSession, surroundings: Surroundings
    ) -> None:
        self.hang: Hang | None = None
        self._view = view
        self._session = session
        self._around = surroundings
        self._counts = True
        """As far as is known."""
        self._unanswered = False
        """The last probe: something is owed until there is progress."""
        self._pulse = first(self._sight(None))

    async def run(self) -> None:
        pause = LOOK_SECONDS
        while True:
            try:
                stall = self._around.stall_of(self._view.model)
                if stall is not None:
                    pause = min(LOOK_SECONDS, stall / _LOOKS)
                    await self._look(stall)
            except Exception:  # noqa: BLE001  the boundary of the task: the next look may do better
                _log.exception("watching a backend failed", model=self._view.model)
            await asyncio.sleep(pause)

    async def _look(self, stall: float) -> None:
        self._take(await self._ask_counts(stall))
        if not self._counts:
            return
        if self._pulse.stalled_seconds >= stall:
            await self._decide(stall)
        elif self._is_idle and self._pulse.quiet_seconds >= stall * _QUIET:
            await self._probe_idle(stall)

    @property
    def _is_idle(self) -> bool:
        return self._around.traffic.in_flight(self._view.nonce) == 0

    async def _ask_counts(self, stall: float) -> Progress | Untold | None:
        """Only where something is owed: an idle engine is left alone."""
        if self._sight(None).owed == 0:
            return None
        seconds = min(PAGE_SECONDS, stall * _QUIET)
        return await read_progress(self._around.pages, self._view.launch, seconds=seconds)

    def _sight(self, counts: Progress | Untold | None) -> Sight:
        """As of now."""
        around, nonce = self._around, self._view.nonce
        pids = () if self._view.gpus else self._computing_pids()
        return Sight(
            at=around.clock(),
            owed=around.traffic.awaited(nonce) + self._unanswered,
            relayed_bytes=around.traffic.relayed_bytes(nonce),
            counts=counts,
            cpu_seconds=sum(map(cpu_seconds, pids)) if pids else None,
        )

    def _computing_pids(self) -> list[int]:
        """A server that refuses or waits computes, too: it is left out where it stands apart."""
        pids = self._around.families().get(self._view.nonce, ())
        apart = self._view.launch.counters.computes_apart
        return [pid for pid in pids if not (apart and pid == self._view.pid)]

    def _take(self, counts: Progress | Untold | None) -> None:
        sight = self._sight(counts)
        if counts is not None:
            self._counts = not (isinstance(counts, Untold) and counts.uncounted)
        if not self._counts:
            self._pulse, self._unanswered = first(sight), False
            return
        self._pulse = after(self._pulse, sight)
        if self._pulse.progress_at == sight.at:
            self._note_progress()

    def _note_progress(self) -> None:
        self._unanswered = False
        if self.hang is not None:
            self.hang = None
            _log.info("backend works again", model=self._view.model, pid=self._view.pid)
            self._around.wake()

    async def _probe_idle(self, stall: float) -> None:
        """The probe may take as long as a request: until it is answered, it is one that is owed."""
        await self._around.probing(self._view)
        self._unanswered = True
        self._pulse = replace(self._pulse, seen=self._sight(None))
        if await question(self._session, self._view.launch, seconds=stall) is None:
            self._be_answered()
            await self._around.probed(self._view)

    async def _decide(self, stall: float) -> None:
        limit = min(PROBE_SECONDS, stall)
        missing = await question(self._session, self._view.launch, seconds=limit)
        if missing is None:
            _log.info(
                "backend makes no progress, but answers a probe",
                model=self._view.model,
                stalled_seconds=round(self._pulse.stalled_seconds),
            )
            self._be_answered()
            return
        self._take(await self._ask_counts(stall))
        if self._pulse.stalled_seconds >= stall and self._counts:
            self._condemn(missing)

    def _be_answered(self) -> None:
        self._pulse = replace(first(self._sight(None)), told=self._pulse.told)
        self._note_progress()

    def _condemn(self, missing: str) -> None:
        """The same is said once; after another `stall` it is tried again, should nobody end it."""
        in_flight = self._around.traffic.in_flight(self._view.nonce)
        said = standstill(self._pulse, in_flight=in_flight)
        stalled = self._pulse.stalled_seconds
        self._pulse = replace(self._pulse, stalled_seconds=0.0)
        if self.hang is not None:
            return
        generates = self._view.launch.probe.type is ModelType.LLM
        probe = "a probe of one token" if generates else "a probe"
        reason = f"{said}; {probe} got no answer: {missing}"
        self.hang = Hang(reason=reason, since=self._pulse.progress_at)
        self._around.report(
            BackendHung(
                model=self._view.model,
                pid=self._view.pid,
                reason=reason,
                stalled_seconds=stalled,
                in_flight=in_flight,
            )
        )
        self._around.wake()
