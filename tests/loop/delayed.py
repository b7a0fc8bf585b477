"""Effects that take their time: how long each of them does is drawn, tick by tick."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from reconciler.apply.effects import Prepared
from reconciler.plan.actions import Action, FetchFiles, KeepBackend, StartBackend, StopBackend
from reconciler.plan.ids import ModelName, Nonce, SpecHash
from reconciler.plan.observed import EffectKind, InFlight
from tests.loop.instant import Instant

SHARE = 0.5
"""Of the effects under way, those that end at a tick."""


@dataclass(slots=True)
class _Busy:
    action: Action
    prepared: Prepared | None
    shown: InFlight


@dataclass(slots=True)
class Pace:
    """`busy`: what is under way of each model; `loading`: processes that are not loaded yet."""

    random: Random
    busy: dict[ModelName, _Busy] = field(default_factory=dict)
    loading: set[Nonce] = field(default_factory=set)


class Delayed(Instant):
    """`pace`: None: nothing takes time."""

    pace: Pace | None = None

    def in_flight(self) -> Mapping[ModelName, InFlight]:
        if self.pace is None:
            return {}
        return {name: each.shown for name, each in self.pace.busy.items()}

    def dispatch(self, action: Action, prepared: Prepared | None, *, now: float) -> None:
        if self.pace is None:
            super().dispatch(action, prepared, now=now)
            return
        shown = self._shown(action, prepared, now)
        self.machine.begun.append(action)
        if shown is None:
            del self.pace.busy[action.model]
            if isinstance(action, KeepBackend):
                self._show(action.nonce, stopping=False)
        else:
            self.pace.busy[action.model] = _Busy(action, prepared, shown)

    def pass_time(self, now: float) -> bool:
        """Whether anything was under way."""
        if self.pace is None:
            return False
        random, busy, loading = self.pace.random, self.pace.busy, self.pace.loading
        ended = [name for name in busy if random.random() < SHARE]
        loaded = [nonce for nonce in loading if random.random() < SHARE]
        was_under_way = bool(busy or loading)
        for nonce in loaded:
            loading.remove(nonce)
            if nonce in self.machine.views:
                view = self.machine.views[nonce]
                self.machine.views[nonce] = replace(view, loaded_at=now)
        for name in ended:
            each = busy.pop(name)
            before = self.machine.views.keys()
            known = set(before)
            outcome = self._carry_out(each.action, each.prepared, now)
            for nonce in before - known:
                view = self.machine.views[nonce]
                self.machine.views[nonce] = replace(view, loaded_at=None)
                loading.add(nonce)
            if outcome is not None:
                self._outcomes.append(outcome)
        return was_under_way

    def _show(self, nonce: Nonce, *, stopping: bool) -> None:
        self.machine.views[nonce] = replace(self.machine.views[nonce], stopping=stopping)

    def _shown(self, action: Action, prepared: Prepared | None, now: float) -> InFlight | None:
        match action:
            case FetchFiles():
                return InFlight(kind=EffectKind.FETCH, spec_hash=action.spec_hash, since=now)
            case StartBackend():
                assert prepared is not None
                return InFlight(
                    kind=EffectKind.START,
                    spec_hash=action.instance.spec_hash,
                    since=now,
                    gpus=action.gpus,
                    gpu_share=prepared.desired.gpu_share,
                )
            case StopBackend():
                self._show(action.nonce, stopping=True)
                return InFlight(
                    kind=EffectKind.STOP,
                    spec_hash=self.machine.views[action.nonce].instance.spec_hash or SpecHash(""),
                    since=now,
                    detail=action.cause,
                    nonce=action.nonce,
                    pid=action.pid,
                    revocable=action.revocable,
                )
            case _:
                return None
