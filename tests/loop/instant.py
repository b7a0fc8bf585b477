"""A whole loop on a machine of GPUs where every effect succeeds at once, and nothing is started.

All but processes, effects and the survey is the agent's own: manifests, cache, hub, engines, books.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from reconciler.apply.backends import Backends, BackendView
from reconciler.apply.effects import Effects, Prepared
from reconciler.apply.gpu_watch import Surveyed
from reconciler.apply.hub_questions import HubQuestions
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched, Outcome
from reconciler.backend.engines import Engines
from reconciler.errors import Rejected, XgenError
from reconciler.plan.actions import Action, FetchFiles, StartBackend, StopBackend
from reconciler.plan.desired import ModelSpec
from reconciler.plan.gpu_survey import Answer, Step
from reconciler.plan.gpus import Gpu, GpuProcess
from reconciler.plan.ids import ModelName, NodeName, Nonce
from reconciler.plan.observed import InFlight, Leftover
from tests.loop.book_entries import view

NODE = NodeName("node-a")
TICK_SECONDS = 20.0
"""More than the memory of what has ended is said to be on its way back."""
FIRST_PID = 5_000_000
"""No process of this machine has such a number."""
T = TypeVar("T")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self, moment: float) -> str:
        return datetime.fromtimestamp(moment, UTC).isoformat()


class Asked(HubQuestions[T]):
    """Who asks the hub at once, not in the background."""

    def watch(self, models: Mapping[ModelName, ModelSpec]) -> None:
        told = {name: says for name, spec in models.items() if (says := self.ask_once(spec))}
        if told != self._told:
            self._told.clear()
            self._told.update(told)
            self._wake()


class Spawned(Backends):
    """Those that the effects say they have started."""

    views: dict[Nonce, BackendView]

    def live(self) -> tuple[BackendView, ...]:
        return tuple(self.views.values())

    def families(self) -> Mapping[Nonce, tuple[int, ...]]:
        return {nonce: (each.pid,) for nonce, each in self.views.items()}

    def leftovers(self) -> tuple[Leftover, ...]:
        return ()


class Instant(Effects):
    """`fails`: models whose starts fail for good."""

    machine: "Machine"
    fails: frozenset[str] = frozenset()

    def in_flight(self) -> Mapping[ModelName, InFlight]:
        return {}

    def dispatch(self, action: Action, prepared: Prepared | None, *, now: float) -> None:
        self.machine.begun.append(action)
        outcome = self._carry_out(action, prepared, now)
        if outcome is not None:
            self._outcomes.append(outcome)

    def _carry_out(self, action: Action, prepared: Prepared | None, now: float) -> Outcome | None:
        match action:
            case FetchFiles():
                assert prepared is not None
                try:
                    self._cache.fetch(prepared.desired.spec)
                except XgenError as exc:
                    return EffectFailed(
                        model=action.model,
                        spec_hash=action.spec_hash,
                        files_digest=None,
                        during="fetch",
                        reason=str(exc),
                        permanent=isinstance(exc, Rejected),
                    )
                return FilesFetched(model=action.model, spec_hash=action.spec_hash, seconds=0.0)
            case StartBackend() if action.model in self.fails:
                return EffectFailed(
                    model=action.model,
                    spec_hash=action.instance.spec_hash,
                    files_digest=action.instance.files_digest,
                    during="start",
                    reason="cannot start: it is made to fail",
                    permanent=True,
                )
            case StartBackend():
                assert prepared is not None
                self.machine.start(action, prepared, now)
                return None
            case StopBackend():
                self.machine.stop(action.nonce)
                return BackendStopped(
                    model=action.model,
                    nonce=action.nonce,
                    failure=action.failure,
                    ran_seconds=action.ran_seconds,
                )
            case _:
                return None


class Machine:
    """Its GPUs, and what each process holds of them: what its engine was reckoned to need."""

    def __init__(self, devices: tuple[Gpu, ...], clock: Clock, engines: Engines) -> None:
        self.devices = devices
        self.begun: list[Action] = []
        self.views: dict[Nonce, BackendView] = {}
        self._held: dict[Nonce, Mapping[str, int]] = {}
        self._clock = clock
        self._engines = engines
        self._pids = itertools.count(FIRST_PID)

    def start(self, action: StartBackend, prepared: Prepared, now: float) -> None:
        pid, model = next(self._pids), prepared.desired
        assert prepared.choice is not None
        nonce = Nonce(f"n{pid}")
        needs = self._engines.assess(model, prepared.files, prepared.choice.devices).needs
        self._held[nonce] = {pool: need.own_bytes for pool, need in needs.items()}
        like = view()
        self.views[nonce] = replace(
            like,
            model=action.model,
            nonce=nonce,
            pid=pid,
            instance=action.instance,
            launch=replace(like.launch, gpu_share=model.gpu_share, build=prepared.choice.build),
            gpus=action.gpus,
            started_at=now,
            loaded_at=now,
        )

    def stop(self, nonce: Nonce) -> None:
        del self.views[nonce], self._held[nonce]

    @property
    def surveyed(self) -> Surveyed:
        devices = tuple(map(self._told, self.devices))
        answer = Answer(step=Step.NVML, reason="told", devices=devices)
        return Surveyed(answers=(answer,), began=self.now() - 0.1, own_pids=True)

    def now(self) -> float:
        return self._clock.now

    def hurry(self) -> None:
        return

    def _told(self, device: Gpu) -> Gpu:
        held = {
            self.views[nonce].pid: sizes[device.identity]
            for nonce, sizes in self._held.items()
            if sizes.get(device.identity)
        }
        total = device.memory_total_bytes or 0
        used = sum(held.values())
        return replace(
            device,
            memory_used_bytes=used,
            memory_free_bytes=total - used,
            processes=tuple(GpuProcess(pid=pid, memory_bytes=size) for pid, size in held.items()),
        )
