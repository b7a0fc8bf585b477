"""Which models of this node run on their fallback.

A choice is taken while nothing of the model runs, and stays for as long as a process of either
choice lives (R4), also over a restart of the agent. An edit of a model that was on its source tries
the source again, whatever runs.
"""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, field

from reconciler.loop.observation import Look, Looks, Views
from reconciler.plan.backend_ids import vendor_of
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.fallbacks import fallen_back, with_fallbacks
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import ModelName, SpecHash


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """`wanted`: as the manifest has it; `desired`: with the fallbacks of `fallen` put in."""

    wanted: Desired | None = None
    desired: Desired | None = None
    fallen: frozenset[ModelName] = field(default_factory=frozenset)

    def was_on_source(self, name: ModelName) -> bool:
        known = any(model.name == name for model in self.wanted.models) if self.wanted else False
        return known and name not in self.fallen


class Fallbacks:
    """Kept by the loop alone. `builds`: the engines; the very same while nothing is new."""

    def __init__(self, builds: Callable[[], object] = tuple) -> None:
        self._builds = builds
        self._known_builds = builds()
        self._last = _Settled()
        self._refused: Mapping[ModelName, DesiredModel] = {}
        self._roll: Roll | None = None
        self._news: tuple[tuple[ModelName, str | None], ...] = ()

    def copy(self) -> "Fallbacks":
        """For a rehearsal: it knows the same, and learns for itself."""
        other = copy(self)
        other._news = ()
        return other

    def take_news(self) -> tuple[tuple[ModelName, str | None], ...]:
        """Which models have taken their fallback since the last call, and why."""
        news, self._news = self._news, ()
        return news

    def settle(self, wanted: Desired | None, views: Views) -> Desired | None:
        """The very value of the call before, unless there is news."""
        models = wanted.models if wanted is not None else ()
        self._refused = {
            model.name: model for model in models if self._refused.get(model.name) == model
        }
        fallen = frozenset(
            model.name for model in models if self._is_fallen(model, _running(model.name, views))
        )
        if wanted is not self._last.wanted or fallen != self._last.fallen:
            desired = with_fallbacks(wanted, fallen) if wanted is not None else None
            self._last = _Settled(wanted=wanted, desired=desired, fallen=fallen)
        return self._last.desired

    def learn(self, looks: Looks, views: Views, roll: Roll | None) -> bool:
        """Whether models are to be settled anew: sources that nothing here can run, or other GPUs
        or engines, with which they are tried again."""
        lasting, builds = roll.lasting if roll is not None else None, self._builds()
        if lasting != self._roll or builds is not self._known_builds:
            self._roll, self._known_builds = lasting, builds
            if self._refused:
                self._refused = {}
                return True
        models = self._last.wanted.models if self._last.wanted is not None else ()
        refused = {
            model.name: model
            for model in models
            if model.fallback is not None
            and model.name not in self._last.fallen
            and model.enabled
            and _cannot_run(looks[model.name], lasting)
            and model.spec_hash not in _running(model.name, views)
        }
        self._news += tuple((name, looks[name].refusal) for name in refused)
        self._refused = {**self._refused, **refused}
        return bool(refused)

    def _is_fallen(self, model: DesiredModel, running: Collection[SpecHash]) -> bool:
        if model.fallback is None or model.spec_hash in running:
            return False
        if model.name in self._refused:
            return True
        return fallen_back(model).spec_hash in running and not self._last.was_on_source(model.name)


def _cannot_run(look: Look, roll: Roll | None) -> bool:
    """Whether nothing here can run it. GPUs that other models have are no reason: the fallback
    would not get them either."""
    if look.assessment.no_backend is not None:
        return True
    vendor = vendor_of(look.desired.spec.backend)
    if vendor is None or roll is None or look.claim.refusal is None:
        return False
    return all(device.vendor is not vendor for device in roll.usable)


def _running(name: ModelName, views: Views) -> frozenset[SpecHash]:
    return frozenset(view.instance.spec_hash for view in views.get(name, ()))
