"""One spawn as the agent holds it, from its start (or its discovery) to its proven end."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from reconciler.apply.kin import Kin
from reconciler.apply.ladder import bring_down
from reconciler.backend.launch import Launch
from reconciler.errors import Transient
from reconciler.observe.checks import Failed
from reconciler.observe.progress import Progress
from reconciler.plan.ids import GpuUuid, Instance, ModelName, Nonce
from reconciler.plan.observed import Adoption, Leftover

_log = structlog.get_logger("xgen.backends")

KILL_SECONDS = 10.0
"""For the kernel to end what was killed, where no model's own setting is at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendView:
    """A live backend of ours. Times on the agent's monotonic clock.

    `stopping`: its end is under way, asked for or not; nothing may be routed to it. `progress`:
    what it still lacks to be loaded, or what holds up its end; empty while it serves. `adopted`:
    None: started by this agent. `counted`: by its engine, before this agent; None: not known.
    `failed_check`: why it may not serve; None: it has passed its checks, or not yet had them.
    `launch_hash`: of an adopted one, as recorded; its `launch` is not whole. `died`: its first
    process has ended, before anybody asked.
    """

    model: ModelName
    nonce: Nonce
    pid: int
    instance: Instance
    launch: Launch
    gpus: tuple[GpuUuid, ...]
    started_at: float
    loaded_at: float | None
    log_path: Path
    stopping: bool
    progress: str = ""
    adopted: Adoption | None = None
    counted: Progress | None = None
    failed_check: str | None = None
    launch_hash: str | None = None
    died: bool = False

    @property
    def was_loaded(self) -> bool:
        """By this agent or one before it."""
        return self.loaded_at is not None or (self.adopted is not None and self.adopted.was_loaded)


class Held:
    """`view` is None for a leftover. `asked`: its end was wanted before it came.

    `ended`: awaited once, when nobody of the spawn is left. `changed`: called when the view is.
    """

    def __init__(
        self,
        kin: Kin,
        *,
        found: BackendView | Leftover,
        ended: Callable[["Held"], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self.kin = kin
        self.view = found if isinstance(found, BackendView) else None
        self._left = found if isinstance(found, Leftover) else None
        self.asked = False
        self._ended = ended
        self._changed = changed
        self._urgent = asyncio.Event()
        self._death: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None

    @property
    def nonce(self) -> Nonce:
        return self.kin.record.nonce

    @property
    def dying(self) -> bool:
        """The ladder is under way."""
        return self._death is not None and not self._death.done()

    def ends(self, which: Callable[[ModelName], bool]) -> bool:
        """Whether it is of one of these, and dying."""
        return self.dying and which(self.kin.record.model)

    @property
    def leaderless(self) -> bool:
        leader = self.kin.leader
        return leader is None or leader.gone.is_set()

    def leftover(self) -> Leftover | None:
        """None: it is a backend of this agent."""
        return replace(self._left, stopping=self.dying) if self._left is not None else None

    def is_left(self, left: Leftover) -> None:
        """It is no backend any more: the plan ends who lives on."""
        if self._loading is not None:
            self._loading.cancel()
        self.view, self._left = None, left
        self._changed()

    def serves_no_more(self) -> None:
        if self.view is not None:
            self.view = replace(self.view, stopping=True, progress="")

    def note_death(self) -> None:
        """Of its first process."""
        self.serves_no_more()
        if self.view is not None:
            self.view = replace(self.view, died=not self.asked)

    def load(
        self,
        until_ready: Callable[[], Awaitable[Progress | Failed | None]],
        clock: Callable[[], float],
    ) -> None:
        """Wait, in a task, until it serves, and note when, and what it had counted by then; or that
        it failed a check."""

        async def wait() -> None:
            try:
                counted = await until_ready()
            except Exception as exc:  # noqa: BLE001  the boundary of the task: it must not end unsaid
                _log.exception("asking a backend failed", model=self.kin.record.model)
                self.note(f"cannot be asked whether it serves: {exc!r}")
                return
            if isinstance(counted, Failed):
                self._change(progress="", failed_check=counted.reason)
            else:
                # Now that it is made: a kill of all processes at once leaves nobody to ask.
                await asyncio.to_thread(self.kin.note_shared_memory)
                self._change(loaded_at=clock(), progress="", counted=counted)

        self._loading = asyncio.create_task(wait(), name=f"ready:{self.kin.record.model}")

    def note(self, progress: str) -> None:
        """What it still lacks."""
        self._change(progress=progress)

    async def end(
        self, *, stop_seconds: float, kill_seconds: float, hurry: asyncio.Event | None
    ) -> None:
        """Join the end that is under way, or begin it. Cancelling this leaves it under way."""
        if self.kin.leader is None or not self.leaderless:
            self.asked = True
        death = self.begin_end(stop_seconds=stop_seconds, kill_seconds=kill_seconds)
        hurrying = asyncio.create_task(self._obey(hurry), name=f"hurry:{self.kin.record.model}")
        try:
            await asyncio.shield(death)
        finally:
            hurrying.cancel()

    def begin_end(
        self, *, stop_seconds: float = 0.0, kill_seconds: float = KILL_SECONDS
    ) -> asyncio.Task[None]:
        if self._death is None or (self._death.done() and not self._succeeded()):
            if self._loading is not None:
                self._loading.cancel()
            self.serves_no_more()
            self._death = asyncio.create_task(
                self._die(stop_seconds, kill_seconds), name=f"stop:{self.kin.record.model}"
            )
            self._death.add_done_callback(self._note_survivors)
            self._changed()
        return self._death

    def kill(self) -> None:
        """SIGKILL to everyone that was seen, now, and the rest of the end in a task."""
        leader = self.kin.leader
        self.asked = self.asked or leader is None or not leader.gone.is_set()
        self._urgent.set()
        self.kin.kill()
        self.begin_end()

    async def close(self) -> None:
        """Let go of it, as it is."""
        tasks = [task for task in (self._loading, self._death) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.kin.leader is not None:
            self.kin.leader.close()

    async def _die(self, stop_seconds: float, kill_seconds: float) -> None:
        await bring_down(
            self.kin, stop_seconds=stop_seconds, kill_seconds=kill_seconds, urgent=self._urgent
        )
        await self._ended(self)

    async def _obey(self, hurry: asyncio.Event | None) -> None:
        if hurry is not None:
            await hurry.wait()
            self._urgent.set()

    def _change(
        self,
        *,
        progress: str,
        loaded_at: float | None = None,
        counted: Progress | None = None,
        failed_check: str | None = None,
    ) -> None:
        if self.view is not None and not self.view.stopping:
            self.view = replace(
                self.view,
                progress=progress,
                loaded_at=loaded_at,
                counted=counted,
                failed_check=failed_check,
            )
            self._changed()

    def _succeeded(self) -> bool:
        death = self._death
        return (
            death is not None
            and death.done()
            and not death.cancelled()
            and death.exception() is None
        )

    def _note_survivors(self, death: asyncio.Task[None]) -> None:
        """Whoever awaits the end hears of it, too; here nobody may be waiting."""
        if death.cancelled() or (error := death.exception()) is None:
            return
        if not isinstance(error, Transient):
            _log.error("the end of a backend failed", model=self.kin.record.model, exc_info=error)
        if self.view is not None:
            self.view = replace(self.view, progress=str(error))
        self._changed()
