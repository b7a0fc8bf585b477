"""The backends of this node: spawned, watched, asked whether they serve, brought down.

Everything here runs on the loop's thread; what blocks (/proc, fsync, exec) runs in threads.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

import aiohttp
import structlog

from reconciler.apply.adoption import adopt, known_late, without_leader
from reconciler.apply.custody import Custody, HoldFolder, Kept
from reconciler.apply.exits import BackendExited, exit_of
from reconciler.apply.held import BackendView, Held
from reconciler.apply.kin import Kin
from reconciler.apply.leader import Leader
from reconciler.apply.leftovers import Ended, Findings, find_leftovers
from reconciler.apply.loading import run_checks, until_ready
from reconciler.apply.logs import rotate
from reconciler.apply.ports import Ports
from reconciler.apply.reaper import become_subreaper
from reconciler.apply.records import Records, SpawnRecord
from reconciler.apply.spawn import Order, Started
from reconciler.apply.within import within
from reconciler.backend.launch import Launch
from reconciler.errors import Bug
from reconciler.observe.checks import Failed
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.processes import read_processes
from reconciler.observe.progress import Progress, read_progress
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import GpuUuid, Instance, ModelName, Nonce
from reconciler.plan.observed import Leftover

__all__ = ["BackendExited", "BackendView", "Backends"]

_log = structlog.get_logger("xgen.backends")

SWEEP_SECONDS = 2.0
"""Between looks at /proc for what no event tells: orphans, new sessions, leftovers that ended."""

DOUBT_SWEEPS = 7
"""Every so many sweeps: what was doubtful is looked at anew, and told as it is then."""


class Backends:
    """Between `open` and `close`; `close` leaves the backends as they are.

    `clock`: monotonic seconds. `wake`: called when the loop has something new to see.
    `hold_folder`: of the data folder.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        node: str,
        clock: Callable[[], float],
        wake: Callable[[], None],
        ports: range,
        log_max_bytes: int,
        hold_folder: HoldFolder = lambda: None,
    ) -> None:
        self._node = node
        self._clock = clock
        self._wake = wake
        self._log_max_bytes = log_max_bytes
        self._logs = data_dir / "logs"
        self._records = Records(data_dir / "spawns")
        self._sweep_due = asyncio.Event()
        self.custody = Custody(self._records, hold_folder, self._sweep_due.set)
        self._ports = Ports(ports, host="127.0.0.1", clock=clock)
        self._held: dict[Nonce, Held] = {}
        self._exits: list[BackendExited] = []
        self._earlier: frozenset[Nonce] = frozenset()
        self._told: set[Nonce] = set()  # of those: whose end was told
        self._problems: tuple[str, ...] = ()
        self._unremoved: dict[Nonce, tuple[SpawnRecord, str]] = {}
        self._ended_unseen: list[Ended] = []
        self._pages = EnginePages()
        self._clients = contextlib.AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._writing = asyncio.Lock()  # a record is not written after its end
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """What is doubtful, cannot be read or not removed, as sentences. It stops nothing."""
        return (*self._problems, *(problem for _, problem in self._unremoved.values()))

    async def open(self) -> None:
        """Find what earlier agents left, and go on with it where that can be (R9); the rest is for
        the plan to end (R3). Watch from now on. Raises OSError or Rejected."""
        become_subreaper()
        await asyncio.to_thread(self._logs.mkdir, mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(self._records.open)
        self.custody.open()
        self._session = await self._clients.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        )
        await self._clients.enter_async_context(self._pages)
        for kin in await self._read_records(None):
            self._take_over(kin, self._session)
        self._sweeping = asyncio.create_task(self._sweep_for_ever(), name="backends:sweep")

    async def close(self) -> None:
        """Stop watching; kills nobody."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        self.custody.close()
        for held in tuple(self._held.values()):
            await held.close()
        self._ports.close()
        await self._clients.aclose()
        self._session = None

    def live(self) -> tuple[BackendView, ...]:
        """Backends of this agent, their end under way or not; gone ones are in `take_exits`."""
        return tuple(held.view for held in self._held.values() if held.view is not None)

    def families(self) -> Mapping[Nonce, tuple[int, ...]]:
        """The pids of each live backend, as the last look at /proc found them."""
        return {
            held.view.nonce: tuple(each.pid for each in held.kin.alive) or (held.view.pid,)
            for held in self._held.values()
            if held.view is not None
        }

    def api_keys(self) -> tuple[str, ...]:
        """Those of all that live, for whoever has to keep them out of sight."""
        records = (held.kin.record for held in self._held.values())
        return tuple(record.api_key for record in records if record.api_key)

    def leftovers(self) -> tuple[Leftover, ...]:
        """What an agent before this one left, lives, and cannot be adopted."""
        left = (held.leftover() for held in self._held.values())
        return tuple(each for each in left if each is not None)

    def take_exits(self) -> tuple[BackendExited, ...]:
        """Exits since the last call; each is told once, when nobody of the spawn is left."""
        exits, self._exits = tuple(self._exits), []
        return exits

    def take_ended_unseen(self) -> tuple[Ended, ...]:
        """What earlier agents had started, and was gone when this one came; each is told once."""
        ended, self._ended_unseen = tuple(self._ended_unseen), []
        return ended

    def free_port(self) -> int:
        """A port for the next spawn, not given to another one meanwhile. Raises Transient."""
        return self._ports.take({held.kin.record.port for held in self._held.values()})

    async def spawn(
        self,
        *,
        model: ModelName,
        spec: ModelSpec,
        instance: Instance,
        gpus: tuple[GpuUuid, ...],
        launch: Launch,
        first_answer_seconds: float = 300.0,
    ) -> BackendView:
        """Start a backend and ask it, in the background, until it serves.

        Raises Transient or Rejected: "cannot start x: /path: permission denied". Cancelled in
        between, the backend is there all the same, and in `live`.
        """
        if self._session is None:
            raise Bug(f"cannot start {model}: the backends are not open")
        order = Order(
            model=model,
            nonce=Nonce(secrets.token_hex(16)),
            node=self._node,
            instance=instance,
            gpus=gpus,
            launch=launch,
            logs=self._logs,
            log_max_bytes=self._log_max_bytes,
            in_use=frozenset(held.kin.record.log for held in self._held.values()),
            spec=spec,
            first_answer_seconds=first_answer_seconds,
        )
        starting = asyncio.create_task(self._start(order, self._session), name=f"spawn:{model}")
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            raise

    async def stop(
        self,
        nonce: Nonce,
        *,
        stop_seconds: float,
        kill_seconds: float,
        hurry: asyncio.Event | None = None,
    ) -> None:
        """Climb the ladder (R10) for a live backend or a leftover; return when nobody is left.

        One that is not there is stopped already; a stop under way is joined. `hurry`, when set:
        KILL at once. Raises Transient that names survivors.
        """
        if (held := self._held.get(nonce)) is not None:
            await held.end(stop_seconds=stop_seconds, kill_seconds=kill_seconds, hurry=hurry)

    async def ends_settled(self, which: Callable[[ModelName], bool]) -> None:
        """Wait until no end of these is under way, of one whose first process died, say."""
        while ends := [each.begin_end() for each in self._held.values() if each.ends(which)]:
            await asyncio.wait(ends)

    def kill_now(self) -> None:
        """SIGKILL to every process of every backend and leftover."""
        for held in tuple(self._held.values()):
            held.kill()

    def _take_over(self, kin: Kin, session: aiohttp.ClientSession) -> None:
        found = adopt(kin, self._clock())
        held = self._hold(kin, found)
        self._ports.keep(kin.record.port)
        if isinstance(found, BackendView):
            self._ask(held, found, session)

    async def _start(self, order: Order, session: aiohttp.ClientSession) -> BackendView:
        with self._ports.starting(order.launch.port):
            started = await asyncio.to_thread(self.custody.start, order)
            view = self._view(order, started)
            leader = Leader(pid=started.pid, pidfd=started.pidfd, child=True)
            held = self._hold(Kin(started.record, leader), view)
        self._ask(held, view, session)
        return view

    def _ask(self, held: Held, view: BackendView, session: aiohttp.ClientSession) -> None:
        """Until it serves, and has passed its checks, unless it has served already; then, of one
        that has served others, what it has counted by now."""
        seconds = held.kin.record.first_answer_seconds

        async def ready() -> Progress | Failed | None:
            await until_ready(session, view.launch, first_answer_seconds=seconds, report=held.note)
            if not view.was_loaded:
                failed = await run_checks(
                    session, view.launch, first_answer_seconds=seconds, report=held.note
                )
                if failed is not None:
                    return failed
            if view.adopted is None:
                return None
            counted = await read_progress(self._pages, view.launch)
            return counted if isinstance(counted, Progress) else None

        held.load(ready, self._clock)

    def _view(self, order: Order, started: Started) -> BackendView:
        return BackendView(
            model=order.model,
            nonce=order.nonce,
            pid=started.pid,
            instance=order.instance,
            launch=order.launch,
            gpus=order.gpus,
            started_at=self._clock(),
            loaded_at=None,
            log_path=Path(started.record.log),
            stopping=False,
        )

    def _hold(self, kin: Kin, found: BackendView | Leftover) -> Held:
        held = Held(kin, found=found, ended=self._end, changed=self._changed)
        self._held[held.nonce] = held
        if kin.leader is not None:
            kin.leader.watch(lambda: self._leader_gone(held))
        return held

    def _changed(self) -> None:
        """A load, or a stop, is noted at once, for the agent after this one."""
        self._sweep_due.set()
        self._wake()

    def _leader_gone(self, held: Held) -> None:
        """Who outlives a leader of ours goes after it at once: its port is free again, but its
        memory is not (vllm#55510). The end of what earlier agents started is for the plan to order
        (R3)."""
        held.note_death()
        if held.view is not None and held.view.adopted is None:
            held.begin_end()
        self._changed()

    async def _end(self, held: Held) -> None:
        """Nobody is left of it: tell so, and forget it, whatever the disk says."""
        exited = None
        if held.view is not None:
            exited = await asyncio.to_thread(exit_of, held, held.view, self._clock())
        async with self._writing:
            await self._forget(held.kin)
            del self._held[held.nonce]
        self._ports.give_back(held.kin.record.port)
        if held.kin.leader is not None:
            held.kin.leader.close()
        if exited is not None:
            self._exits.append(exited)
        self._wake()

    async def _forget(self, kin: Kin) -> None:
        """Its record goes, unless somebody carries its nonce who cannot be shown to be of it, as an
        orphan of an earlier agent's: then only with him, and he is told of till then."""
        if not kin.born_here:
            record, path_of = kin.record, self._records.path
            found = await asyncio.to_thread(find_leftovers, (record,), record.folder, path_of)
            if found.doubtful:
                self._told.add(kin.record.nonce)
                self._earlier |= found.open
                self._problems = tuple(dict.fromkeys((*self._problems, *found.problems)))
                return
        await self._remove(kin.record)

    async def _remove(self, record: SpawnRecord) -> None:
        """And its traces. Where the system does not let go of one, each sweep tries again."""
        problem = await asyncio.to_thread(self.custody.remove, record)
        if problem is not None:
            self._unremoved[record.nonce] = (record, problem)
        else:
            self._unremoved.pop(record.nonce, None)

    async def _sweep_for_ever(self) -> None:
        for number in itertools.count(1):
            await within(SWEEP_SECONDS, self._sweep_due)
            self._sweep_due.clear()
            try:
                await self._sweep()
                for record, _ in tuple(self._unremoved.values()):
                    await self._remove(record)
                doubtful = self._problems or self._earlier - self._held.keys()
                if doubtful and number % DOUBT_SWEEPS == 0:
                    await self._look_again()
            except Exception:  # noqa: BLE001  the boundary of the task: the next sweep may do better
                _log.exception("sweep of backends failed")

    async def _sweep(self) -> None:
        async with self._writing:
            watched = tuple(self._held.values())
            leaderless = [held for held in watched if held.leaderless]
            kept = await asyncio.to_thread(self._look, watched)
        if self.custody.take_up(kept):
            self._wake()
        for held in leaderless:
            view = held.view
            if held.dying:
                continue
            if not held.kin.alive or (view is not None and view.adopted is None):
                held.begin_end()
            elif view is not None:
                exited = await asyncio.to_thread(exit_of, held, view, self._clock())
                if held.view is view:  # no stop has begun meanwhile
                    self._exits.append(exited)
                    held.is_left(without_leader(held.kin))

    async def _look_again(self) -> None:
        late = self._earlier - self._held.keys()
        for kin in await self._read_records(self._earlier):
            if kin.record.nonce in late:
                self._hold(kin, known_late(kin))
            elif kin.leader is not None:  # held already, by the first look's pidfd
                kin.leader.close()
        self._wake()

    def _look(self, watched: Sequence[Held]) -> Kept:
        table = read_processes() if watched else {}
        for held in watched:
            kin, view = held.kin, held.view
            loaded = kin.record.loaded or (view is not None and view.loaded_at is not None)
            if not held.dying and loaded:
                kin.look(table)
            elif not held.dying:  # what it makes while it loads it may leave before it serves
                kin.note_shared_memory(table)
            with contextlib.suppress(OSError):  # a log that cannot be cut keeps no end from us
                rotate(Path(kin.record.log), self._log_max_bytes)
        return self.custody.keep(watched)

    async def _read_records(self, only: Container[Nonce] | None) -> tuple[Kin, ...]:
        """Compare the records of earlier agents with /proc; who lives. `only`: these, not all."""

        def read() -> Findings:
            records, unreadable = self._records.read()
            asked = [record for record in records if only is None or record.nonce in only]
            folder, path_of = self._records.identity(), self._records.path
            return find_leftovers(asked, folder, path_of, unreadable)

        findings = await asyncio.to_thread(read)
        for ended in findings.ended:
            await self._remove(ended.record)
            if not ended.copy and ended.record.nonce not in self._held.keys() | self._told:
                self._ended_unseen.append(ended)
        self._earlier, self._problems = findings.open, findings.problems
        return findings.alive
