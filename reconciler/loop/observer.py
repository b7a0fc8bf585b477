"""Asks the parts of the agent what is there; a rehearsal's stage stands in for some of them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from reconciler.apply.backends import BackendView
from reconciler.apply.secret_values import secret_values
from reconciler.backend.engines import Assessment
from reconciler.backend.inventory import Inventory
from reconciler.backend.offer import Offer
from reconciler.backend.standing_in import standing_in
from reconciler.errors import Rejected, Transient
from reconciler.loop.gpu_memory import Families, GpuFigures, Successions
from reconciler.loop.memory import Memory
from reconciler.loop.observation import ON_CPU, Look, Looks, Secrets, Seen, Views, runs
from reconciler.loop.offered import Offered, Told, offered
from reconciler.plan.desired import DesiredModel, Format, ModelSpec, SecretRef
from reconciler.plan.gpu_claims import Claim
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.observed import FilesCached, Hang, InFlight, Leftover


class Files(Protocol):
    def lookup(self, spec: ModelSpec) -> FilesCached | None: ...


class Judge(Protocol):
    """The engines."""

    @property
    def inventory(self) -> Inventory: ...
    def likely_format(self, spec: ModelSpec) -> Format: ...
    def assess(
        self,
        model: DesiredModel,
        files: FilesCached | None,
        devices: Sequence[Gpu] = (),
        offer: Offer | None = None,
    ) -> Assessment: ...


class Processes(Protocol):
    def live(self) -> Iterable[BackendView]: ...
    def leftovers(self) -> tuple[Leftover, ...]: ...
    def families(self) -> Families: ...


class UnderWay(Protocol):
    def in_flight(self) -> Mapping[ModelName, InFlight]: ...


class Rooms(Protocol):
    """The memories, as `MemoryWatch` tells of them."""

    def look(
        self, families: Families, views: Iterable[BackendView], figures: GpuFigures
    ) -> Memory | None: ...
    def forget(self) -> None: ...
    def fresh(self) -> "Rooms": ...


class Observer:
    """Asks the parts of the agent; changes nothing. `hints` and `offers`: see `Look`, as of now; no
    `offers`: nobody asks."""

    def __init__(
        self,
        *,
        cache: Files,
        engines: Judge,
        backends: Processes,
        effects: UnderWay,
        memory: Rooms,
        environment: Mapping[str, str],
        hung: Callable[[], Mapping[Nonce, Hang]],
        hints: Mapping[ModelName, str] = MappingProxyType({}),
        offers: Told | None = None,
    ) -> None:
        self._offers = offers
        self._hung = hung
        self._hints = hints
        self._cache = cache
        self._engines = engines
        self._backends = backends
        self._effects = effects
        self._memory = memory
        self._environment = environment
        self._inventory = engines.inventory
        self._looks: Looks = {}
        self._successions = Successions()

    @property
    def engines_known(self) -> bool:
        """At the last look."""
        return self._inventory.known

    def see(self) -> Seen:
        """To be called together with booking, with nothing awaited between: else an end could be
        seen whose failure is not in the books yet."""
        views: dict[ModelName, tuple[BackendView, ...]] = {}
        for view in self._backends.live():
            views[view.model] = (*views.get(view.model, ()), view)
        return Seen(
            views=views,
            in_flight=self._effects.in_flight(),
            leftovers=self._backends.leftovers(),
            hung=self._hung(),
            engines_failure=self._engines.inventory.failure,
        )

    def look(
        self,
        models: Iterable[DesiredModel],
        views: Views,
        claims: Mapping[ModelName, Claim] = MappingProxyType({}),
    ) -> Looks:
        """Ask the cache about each model, and the engines about each that is not as it was.

        `claims`: which GPUs models get; one without an entry gets none. Secrets are read only for
        what does not run as it is wanted, and not kept. The very value of the call before where
        nothing is new. For a thread: it reads the disk.
        """
        before, self._inventory = self._inventory, self._engines.inventory
        if self._inventory is not before:
            self._looks = {}
        looks = {
            model.name: self._look(model, views.get(model.name, ()), claims.get(model.name, ON_CPU))
            for model in models
        }
        if looks != self._looks or self._inventory is not before:
            self._looks = looks
        return self._looks

    async def memory(self, looks: Looks, seen: Seen, figures: GpuFigures) -> Memory | None:
        """Read while something is to be started that needs it: else it would be news at each tick.

        None: nothing is, or nobody tells.
        """
        asking = {
            name: look for name, look in looks.items() if _asks(look, seen.sound.get(name, ()))
        }
        successors = {
            (name, look.wanted): look.claim.devices
            for name, look in asking.items()
            if look.wanted is not None and seen.views.get(name)
        }
        figures = replace(figures, replaced=self._successions.see(successors, figures.now))
        if not asking:
            self._memory.forget()
            return None
        views = [view for each in seen.views.values() for view in each]
        families = self._backends.families()
        return await asyncio.to_thread(self._memory.look, families, views, figures)

    def reading(self, seen: Seen, families: Families, figures: GpuFigures) -> Memory | None:
        """All memory as it is now, for somebody who asks once. For a thread."""
        views = [view for each in seen.views.values() for view in each]
        return self._memory.fresh().look(families, views, figures)

    def rehearsing(
        self,
        *,
        files: Files,
        engines: Judge,
        processes: Processes,
        under_way: UnderWay,
        memory: Rooms,
        hung: Mapping[Nonce, Hang],
        hints: Mapping[ModelName, str],
        offers: Told,
    ) -> "Observer":
        """One that asks these instead."""
        other = Observer(
            cache=files,
            engines=engines,
            backends=processes,
            effects=under_way,
            memory=memory,
            environment=self._environment,
            hung=lambda: hung,
            hints=hints,
            offers=offers if self._offers is not None else None,
        )
        other._successions = copy(self._successions)
        return other

    @property
    def engines(self) -> Judge:
        return self._engines

    @property
    def files(self) -> Files:
        return self._cache

    @property
    def told(self) -> tuple[Mapping[ModelName, str], Told]:
        """What the hub has told so far: hints, and offers."""
        return dict(self._hints), dict(self._offers or {})

    def _look(self, model: DesiredModel, views: tuple[BackendView, ...], claim: Claim) -> Look:
        files = self._cache.lookup(model.spec) if model.enabled else None
        offer = offered(self._offers, model, files, self._engines)
        look = self._looks.get(model.name)
        if look is None or not look.still_holds(model, files, claim, offer):
            assessment = Assessment()  # of a model whose devices are not settled nothing is known
            if claim.refusal is None and claim.unknown is None:
                assessment = self._assess(model, files, claim, offer)
            look = Look(
                desired=model,
                files=files,
                assessment=assessment,
                claim=claim,
                offered=offer,
            )
        secrets, hint = self._secrets(model, files, views), self._hints.get(model.name)
        if (secrets, hint) == (look.secrets, look.hint):
            return look
        return replace(look, secrets=secrets, hint=hint)

    def _assess(
        self, model: DesiredModel, files: FilesCached | None, claim: Claim, hub: Offered
    ) -> Assessment:
        assessment = self._engines.assess(model, files, claim.devices, hub.offer)
        source = model.stands_in_for
        if source is None:
            return assessment
        its_files = self._cache.lookup(source)
        verdict = self._engines.assess(replace(model, spec=source), its_files, claim.devices)
        return standing_in(assessment, source.source, verdict)

    def _secrets(
        self, model: DesiredModel, files: FilesCached | None, views: tuple[BackendView, ...]
    ) -> Secrets:
        refers = any(isinstance(value, SecretRef) for value in model.spec.env.values())
        if not refers or not model.enabled or any(runs(model, files, view) for view in views):
            return Secrets()
        try:
            secret_values(model, self._environment)
        except Rejected as exc:
            return Secrets(refusal=str(exc))
        except Transient as exc:
            return Secrets(hindrance=str(exc))
        return Secrets()


def _asks(look: Look, views: tuple[BackendView, ...]) -> bool:
    """Whether it is to be started, for all that the files, the engines and the processes say."""
    if not look.assessment.needs:
        return False
    return not any(runs(look.desired, look.files, view) for view in views)
