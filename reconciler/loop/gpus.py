"""The GPUs as one tick knows them, and which of them each model gets."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from reconciler.apply.backends import BackendView
from reconciler.apply.gpu_numbers import GpuNumbers
from reconciler.apply.gpu_watch import Surveyed
from reconciler.errors import Transient
from reconciler.loop.gpu_memory import BACK_SECONDS, Departures, GpuFigures
from reconciler.loop.observation import Seen
from reconciler.loop.promises import Promises
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.gpu_claims import Claim, claims, named
from reconciler.plan.gpu_holdings import Holding
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.gpu_places import misplaced
from reconciler.plan.gpu_roll import Roll, enrolled, numbered
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import ModelName, Nonce, SpecHash
from reconciler.plan.observed import EffectKind

_log = structlog.get_logger("xgen.gpus")

Families = Mapping[Nonce, Sequence[int]]
"""The pids of each backend."""
_Held = Mapping[ModelName, tuple[Holding, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """`roll`: None before anybody has looked. `desired`: with each model's devices. `misplaced`: of
    processes on GPUs that they were not given, where that was found."""

    roll: Roll | None = None
    desired: Desired | None = None
    claims: Mapping[ModelName, Claim] = field(default_factory=dict)
    misplaced: Mapping[Nonce, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """`outdated`: processes of the spec that is wanted, with other files. `staying`: models that
    cannot be started beside what they run now, so that others may have the GPUs to spare."""

    outdated: frozenset[Nonce] = field(default_factory=frozenset)
    staying: frozenset[ModelName] = field(default_factory=frozenset)


NO_CHANGES = Changes()


class Watch(Protocol):
    """Who asks for the GPUs, as `GpuWatch` does."""

    @property
    def surveyed(self) -> Surveyed | None: ...
    def now(self) -> float: ...
    def hurry(self) -> None: ...


@dataclass(slots=True)
class _Still:
    """What was known when somebody looked last; nobody is asked. `at`: moved by who rehearses."""

    surveyed: Surveyed | None
    at: float

    def now(self) -> float:
        return self.at

    def hurry(self) -> None:
        return


class GpuLedger:
    """Kept by the loop alone. `environment`: the agent's own, for its masks. `can_run`: whether a
    backend here can run a model on such devices, whatever its files hold; while `builds` is the
    very same, so are its answers. `mode`: see `GpuMode`. `numbers`: None where they do not last."""

    def __init__(
        self,
        watch: Watch,
        environment: Mapping[str, str],
        can_run: Callable[[DesiredModel, Sequence[Gpu]], bool],
        mode: GpuMode = GpuMode.NODE,
        builds: Callable[[], object] = tuple,
        numbers: GpuNumbers | None = None,
    ) -> None:
        self._watch = watch
        self._environment = environment
        self._can_run = can_run
        self._mode = mode
        self._builds = builds
        self._known_builds = builds()
        self._surveyed: Surveyed | None = None
        self._named: frozenset[str] = frozenset()
        self._lasting: Roll | None = None
        self._wanted: Desired | None = None
        self._held: _Held = {}
        self._had: _Held = {}
        self._promises = Promises()
        self._changes = NO_CHANGES
        self._seen: Seen | None = None
        self._barred: frozenset[tuple[ModelName, Claim]] = frozenset()
        self._processes: frozenset[tuple[Nonce, bool]] = frozenset()
        self._departures = Departures()
        self._last = Gpus()
        self._numbers = numbers
        self._recalled = numbers.roll if numbers is not None else None
        self._kept = numbered(self._recalled or Roll())
        self.problems: tuple[str, ...] = ()
        self._said: Roll | None = None

    def copy(self) -> "GpuLedger":
        """For a rehearsal: it knows the same, and what it gives is nobody's. Asks for nothing."""
        other = copy(self)
        other._watch = _Still(self._watch.surveyed, self._watch.now())
        other._departures = self._departures.copy()
        other._promises = self._promises.copy()
        other._numbers = None
        return other

    def let_pass(self, seconds: float) -> None:
        """Of a copy: from now on it is so much later."""
        if isinstance(self._watch, _Still):
            self._watch.at += seconds

    def say(self) -> None:
        """To the log, once, where it becomes so."""
        roll, before = self._last.roll, self._said
        self._said = roll
        if roll is None or roll is before:
            return
        if before is None and roll.usable:
            _log.info("GPUs are known", gpus=[named(device) for device in roll.usable])
        if roll.hints and roll.hints != (before.hints if before is not None else ()):
            _log.warning("the GPUs want a look", hints=list(roll.hints))

    async def keep(self) -> None:
        """Write the numbers where they have changed, and try again what could not be written."""
        roll = self._last.roll
        if self._numbers is None or roll is None or numbered(roll) == self._kept:
            return
        kept, told = numbered(roll), self.problems
        try:
            await asyncio.to_thread(self._numbers.write, kept)
        except Transient as exc:
            self.problems = (str(exc),)
            if told != self.problems:
                _log.warning("the numbers of GPUs are not on disk", error=str(exc))
        else:
            self._kept, self.problems = kept, ()

    def look(self, desired: Desired | None, seen: Seen, families: Families) -> Gpus:
        """The very value of the call before, unless there is news."""
        views = [view for each in seen.views.values() for view in each]
        present = {each.nonce: (each.model, each.pid, each.gpus) for each in views}
        present |= {each.nonce: (each.model, each.pid, each.gpus) for each in seen.leftovers}
        self._departures.see(present, self._watch.now())
        processes = frozenset((view.nonce, view.loaded_at is not None) for view in views)
        if processes != self._processes:
            self._processes = processes
            self._watch.hurry()
        builds = self._builds()
        if builds is not self._known_builds:
            self._promises = Promises()
        news = self._take_up(desired, views, families) or builds is not self._known_builds
        self._known_builds = builds
        self._seen = seen
        held = _held(seen, self._changes.outdated)
        news |= held != self._held or self._promises.lapses(held, self._watch.now())
        if news or desired is not self._wanted:
            self._wanted, self._held = desired, held
            self._settle(desired, held)
        return self._last

    def learn(self, barred: Collection[ModelName], changes: Changes = NO_CHANGES) -> bool:
        """Whether claims are to be made anew. `barred`: which of those that have devices now could
        not be started on them.

        That is known of a claim, not of a model: so each is judged once for each claim, and what is
        given does not go to and fro.
        """
        of_now = frozenset(self._last.claims.items())
        found = frozenset(each for each in of_now if each[0] in barred)
        known = self._barred - of_now | found
        if known == self._barred and changes == self._changes:
            return False
        self._barred, self._changes = known, changes
        if self._seen is not None:
            self._held = _held(self._seen, changes.outdated)
        self._settle(self._wanted, self._held)
        return True

    def figures(self) -> GpuFigures:
        """Of the survey that was taken up last."""
        now, roll, surveyed = self._watch.now(), self._last.roll, self._surveyed
        if roll is None or surveyed is None:
            return GpuFigures(now=now)
        return GpuFigures(
            devices=roll.devices,
            began=surveyed.began,
            own_pids=surveyed.own_pids,
            left=self._departures.since(now - BACK_SECONDS),
            now=now,
        )

    def hurry(self) -> None:
        """Somebody waits for memory to come back."""
        self._watch.hurry()

    def _take_up(
        self, desired: Desired | None, views: Sequence[BackendView], families: Families
    ) -> bool:
        """Whether the newest survey, or what the manifest names, changes what is known."""
        models = desired.models if desired is not None else ()
        named = frozenset(gpu for model in models for gpu in model.spec.gpu_ids)
        surveyed = self._watch.surveyed
        if surveyed is None or (surveyed is self._surveyed and named == self._named):
            return False
        self._surveyed, self._named = surveyed, named
        before = self._last.roll or self._recalled
        roll = enrolled(before, surveyed.answers, self._environment, named, self._mode)
        found = _misplaced(roll, surveyed, views, families)
        if roll == self._last.roll and found == self._last.misplaced:
            return False
        self._lasting = roll.lasting
        self._last = replace(self._last, roll=roll, misplaced=found)
        return True

    def _settle(self, desired: Desired | None, held: _Held) -> None:
        """Figures that move with each survey are kept out of the claims, and so of the launches."""
        models = desired.models if desired is not None else ()
        made, idle = self._claims(models, held)
        self._promises.note(models, made, idle, held, self._watch.now())
        self._barred = frozenset(each for each in self._barred if each[0] in made)
        self._had = {
            name: holdings
            for name, holdings in {**self._had, **held}.items()
            if name in held or self._is_kept_for(name, holdings, made)
        }
        settled = desired and replace(desired, models=tuple(_put(model, made) for model in models))
        if (made, settled) != (self._last.claims, self._last.desired):
            self._last = replace(self._last, claims=made, desired=settled)

    def _is_kept_for(
        self, name: ModelName, holdings: Sequence[Holding], made: Mapping[ModelName, Claim]
    ) -> bool:
        """Whether a model without a process is given what it had."""
        claim = made.get(name)
        if claim is None or (name, claim) in self._barred:
            return False
        had = {gpu for holding in holdings for gpu in holding.gpus}
        return any(device.identity in had for device in claim.devices)

    def _claims(
        self, models: Sequence[DesiredModel], held: _Held
    ) -> tuple[dict[ModelName, Claim], Collection[ModelName]]:
        """With whose could not be started here: that keeps its claim for the reason alone, and
        others' GPUs free. Once it can, it chooses among what they leave.

        What has crashed chooses among the others as if it still ran.
        """
        promised = dict(self._promises.of_now(held, self._watch.now()))
        wanted = {model.name for model in models if model.enabled}
        had = {name: holdings for name, holdings in self._had.items() if name in wanted}
        held = {**_as_past(had), **held}
        hopeless: dict[ModelName, Claim] = {}
        while True:
            others = [model for model in models if model.name not in hopeless]
            made = claims(others, self._lasting, held, self._changes.staying, promised)
            more = {
                model.name: made[model.name]
                for model in others
                if model.name not in self._held and self._is_hopeless(model, made.get(model.name))
            }
            hopeless |= more
            revived = [name for name in promised.keys() - hopeless.keys() if promised[name].idle]
            if not more and not revived:
                return made | hopeless, hopeless.keys()
            if not more:
                hopeless = {}
                for name in revived:
                    del promised[name]

    def _is_hopeless(self, model: DesiredModel, claim: Claim | None) -> bool:
        if claim is None or not claim.devices:
            return False
        return (model.name, claim) in self._barred or not self._can_run(model, claim.devices)


def _put(model: DesiredModel, made: Mapping[ModelName, Claim]) -> DesiredModel:
    claim = made.get(model.name)
    return claim.put_into(model) if claim is not None else model


def _as_past(had: _Held) -> _Held:
    return {
        name: tuple(replace(holding, spec_hash=_NO_SPEC, serves=False) for holding in holdings)
        for name, holdings in had.items()
    }


_NO_SPEC = SpecHash("")
"""What holds devices, and is no reason to keep a claim to them."""


def _held(seen: Seen, outdated: Collection[Nonce]) -> _Held:
    held: dict[ModelName, tuple[Holding, ...]] = {}
    found = [
        (view.model, _holding(view, outdated)) for views in seen.views.values() for view in views
    ]
    found += [
        (name, Holding(spec_hash=effect.spec_hash, gpus=effect.gpus, share=effect.gpu_share))
        for name, effect in seen.in_flight.items()
        if effect.kind is EffectKind.START
    ]
    found += [
        (leftover.model, Holding(spec_hash=_NO_SPEC, gpus=leftover.gpus))
        for leftover in seen.leftovers
    ]
    for name, holding in found:
        held[name] = (*held.get(name, ()), holding)
    return held


def _holding(view: BackendView, outdated: Collection[Nonce]) -> Holding:
    return Holding(
        spec_hash=_NO_SPEC if view.nonce in outdated else view.instance.spec_hash,
        gpus=view.gpus,
        share=view.launch.gpu_share,
        serves=view.loaded_at is not None and not view.stopping,
        leaves=view.stopping,
    )


def _misplaced(
    roll: Roll, surveyed: Surveyed, views: Sequence[BackendView], families: Families
) -> dict[Nonce, str]:
    """Of those that lived through the whole survey: a pid in it is of nobody before them."""
    if not surveyed.own_pids:
        return {}
    found = {
        view.nonce: misplaced(families.get(view.nonce, ()), view.gpus, roll)
        for view in views
        if view.started_at < surveyed.began
    }
    return {nonce: said for nonce, said in found.items() if said is not None}
