"""Gathers what a tick has to tell: of each model what is known beside the plan, and of the node."""

import asyncio
from collections.abc import Callable, Mapping

from reconciler.apply.backends import Backends, BackendView
from reconciler.apply.effects import Effects
from reconciler.loop.archive import Archive
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.clock import Clock
from reconciler.loop.deliberation import Deliberation
from reconciler.loop.drifts import Sighting
from reconciler.loop.intent import Understanding
from reconciler.loop.launch_drifts import LaunchDrifts
from reconciler.loop.observation import Look, Looks, Seen
from reconciler.loop.pace import give_way
from reconciler.loop.publisher import Publisher
from reconciler.loop.rails import Rails
from reconciler.loop.report import ModelFacts, planned
from reconciler.loop.revisions import Revisions
from reconciler.loop.standstill import Scene
from reconciler.loop.strangers import Stranger, strangers
from reconciler.plan.actions import Outlook, Plan
from reconciler.plan.ids import ModelName, Nonce
from reconciler.status import Planned

_FILES_OPEN = "files that its process has open have gone from the disk"
_FILES_GONE = "its files have gone from the disk, or were changed"


class Reporter:
    """`launches`: how what runs differs from what would be started. `show_plan`: called with each
    tick's."""

    def __init__(
        self,
        *,
        deliberation: Deliberation,
        launches: LaunchDrifts,
        archive: Archive,
        backends: Backends,
        effects: Effects,
        clock: Clock,
        publisher: Publisher,
        chronicle: Chronicle,
        revisions: Revisions,
        rails: Rails,
        show_plan: Callable[[Planned], None],
    ) -> None:
        self._observer = deliberation.observer
        self._reverts = deliberation.reverts
        self._books = deliberation.books
        self._gpus = deliberation.gpus
        self._launches = launches
        self._archive = archive
        self._backends = backends
        self._effects = effects
        self._clock = clock
        self._publisher = publisher
        self._chronicle = chronicle
        self._revisions = revisions
        self._rails = rails
        self._show_plan = show_plan

    async def report(self, made: Plan, scene: Scene) -> bool:
        """Publish it; whether all that is to be kept of it is on disk, and told so."""
        seen, looks = self._observer.see(), scene.looks
        launches = await self._launches.look(looks, seen.views)
        facts = {}
        for number, outlook in enumerate(made.outlook):
            await give_way(number)
            facts[outlook.model] = self._facts(outlook, scene, seen, launches)
        sighting = Sighting(
            strangers=await self._strangers(seen), files_gone=files_gone(looks, scene.seen)
        )
        self._chronicle.noticed(
            {name: each.reason for name, each in scene.noticed.items() if name in facts},
            unseen={name for name, each in scene.noticed.items() if each.push is None},
        )
        await self._publisher.report(
            made.outlook,
            facts,
            scene.understanding,
            sighting=sighting,
            roll=scene.gpus.roll,
            waits=made.notes,
            held={action.model for action in made.held},
            doubts=scene.doubts,
            over_budget=scene.over_budget,
            history=(
                *self._archive.problems,
                *self._gpus.problems,
                *self._revisions.problems,
                *self._rails.problems,
                *scene.unkept,
            ),
        )
        written = await self._revisions.see(self._publisher.status, scene.understanding)
        unsaved = self._archive.unsaved or self._gpus.problems or self._rails.problems
        return written and not unsaved

    def show(self, made: Plan, understanding: Understanding, now: float) -> None:
        """The plan of a tick, told anew or not."""
        self._show_plan(
            planned(
                made,
                self._effects.in_flight(),
                revision=understanding.revision.applied,
                waits=made.notes,
                now=now,
                wall=self._clock.wall,
            )
        )

    def _facts(
        self,
        outlook: Outlook,
        scene: Scene,
        seen: Seen,
        launches: Mapping[Nonce, str],
    ) -> ModelFacts:
        model = outlook.model
        look = scene.looks.get(model)
        return ModelFacts(
            desired=look.desired if look else None,
            views=seen.views.get(model, ()),
            effect=seen.in_flight.get(model),
            choice=look.assessment.choice if look else None,
            restarts=self._books.restarts(model),
            restart_causes=self._books.restart_causes(model),
            failure=self._reverts.failure(model, self._books),
            recent_failures=self._books.recent_failures(model),
            last_lines=self._books.last_lines(model),
            progress=self._effects.progress(model),
            files=look.files if look else None,
            noticed=scene.noticed.get(model),
            drifts=launches,
            degraded=self._reverts.degraded(outlook),
            past=self._books.stopwatch.past(model),
        )

    async def _strangers(self, seen: Seen) -> tuple[Stranger, ...]:
        figures = self._gpus.figures()
        if not any(device.processes for device in figures.devices):
            return ()
        nonces = {view.nonce for views in seen.views.values() for view in views}
        nonces |= {left.nonce for left in seen.leftovers}
        return await asyncio.to_thread(strangers, figures, self._backends.families(), nonces)


def files_gone(looks: Looks, seen: Seen) -> dict[ModelName, str]:
    """Of models whose process lives, and how. Of one that is disabled nobody has looked."""
    gone = {}
    for name, views in seen.views.items():
        look = looks.get(name)
        if any(view.nonce in seen.reads_removed for view in views):
            gone[name] = _FILES_OPEN
        elif look is not None and any(_lacks_its_files(look, view) for view in views):
            gone[name] = _FILES_GONE
    return gone


def _lacks_its_files(look: Look, view: BackendView) -> bool:
    """Whether it runs by the very spec whose files are not here."""
    is_of_it = view.instance.spec_hash == look.desired.spec_hash and not view.stopping
    return is_of_it and look.desired.enabled and look.files is None
