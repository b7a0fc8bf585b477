"""What failed is tried before its time: its files were mended, its engine was replaced, there are
other GPUs, it has other checks or more time, or somebody asked for it (R7)."""

from collections.abc import Callable, Collection, Iterator, Mapping

from reconciler.apply.comparisons import Comparisons
from reconciler.apply.hub_questions import HubQuestions
from reconciler.apply.mendings import Mendings
from reconciler.apply.pushes import Pushes
from reconciler.backend.inventory import Build, Inventory
from reconciler.backend.offer import HubSays
from reconciler.loop.archive import Archive, Lifted
from reconciler.loop.books import Books
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.commands import Commands
from reconciler.loop.gpus import Gpus
from reconciler.loop.reverts import Reverts
from reconciler.loop.terms import Terms, terms_of
from reconciler.plan.desired import Desired, ModelSpec
from reconciler.plan.gpu_roll import Roll, gains
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import Failure


class Pardons:
    """Kept by the loop alone. `inventory`: the engines as of now."""

    def __init__(
        self,
        *,
        commands: Commands,
        mendings: Mendings,
        comparisons: Comparisons,
        pushes: Pushes,
        offers: HubQuestions[HubSays],
        reverts: Reverts,
        archive: Archive,
        inventory: Callable[[], Inventory],
        chronicle: Chronicle,
    ) -> None:
        self._commands = commands
        self._mendings = mendings
        self._comparisons = comparisons
        self._pushes = pushes
        self._offers = offers
        self._reverts = reverts
        self._archive = archive
        self._inventory = inventory
        self._chronicle = chronicle
        self._known = inventory()
        self._roll: Roll | None = None
        self._terms: Mapping[ModelName, Terms] = {}

    def grant(self, books: Books, desired: Desired | None) -> bool:
        """Whether there was a reason to."""
        lifted = self._recall(books, None) | self._mend(books)
        if desired is not None:
            lifted |= self._recheck(books, desired)
        return lifted | self._renew(books, desired) | self._obey(books, desired)

    def regard(self, books: Books, gpus: Gpus) -> bool:
        """Whether blocks are lifted because of GPUs that came, came back, or have another driver.

        Only blocks: a GPU that comes and goes must not take the pause from between the tries.
        """
        recalled = gpus.roll is not None and self._recall(books, gpus.roll)
        before, self._roll = self._roll, gpus.roll
        if gpus.roll is not None and gpus.roll.notes != (before.notes if before else ()):
            self._chronicle.gpus(gpus.roll.notes)
        if recalled:
            return True
        if before is None or gpus.roll is None or before is gpus.roll:
            return False
        gained = gains(before, gpus.roll)
        lifted = False
        for model, claim in gpus.claims.items() if gained else ():
            failure = books.failure(model)
            if failure is None or not failure.permanent or not claim.devices:
                continue
            if books.renew(model) is not None:
                self._chronicle.forgiven(model, failure, " and ".join(gained))
                lifted = True
        return lifted

    def foresee(self, books: Books, desired: Desired) -> None:
        """What `grant` would lift for this manifest, in a copy of the books."""
        for each in self._archive.on_other_terms(desired):
            books.lift(each.model, each.failure)
        for model in desired.models:
            terms = terms_of(model)
            if self._terms.get(model.name, terms) != terms:
                books.recheck(model.name)

    def _recall(self, books: Books, roll: Roll | None) -> bool:
        """Whether blocks of earlier agents are lifted."""
        return self._lift(books, tuple(self._archive.review(roll)))

    def _lift(self, books: Books, lifted: Collection[Lifted]) -> bool:
        for each in lifted:
            books.lift(each.model, each.failure)
            self._chronicle.forgiven(each.model, each.failure, each.why)
        return bool(lifted)

    def _mend(self, books: Books) -> bool:
        """Whether the hub holds other files now where they were damaged."""
        forgiven = False
        for model in self._mendings.take_mended():
            if (failure := books.mend(model)) is not None:
                self._chronicle.forgiven(model, failure, "the hub holds another file now")
                forgiven = True
        return forgiven

    def _recheck(self, books: Books, desired: Desired) -> bool:
        """Whether what may have failed a check, or taken too long, has other checks or other limits
        now: they are in no hash."""
        before, self._terms = self._terms, {each.name: terms_of(each) for each in desired.models}
        forgiven = self._lift(books, tuple(self._archive.recheck(desired)))
        for model, terms in self._terms.items():
            if before.get(model, terms) == terms:
                continue
            if (failure := books.recheck(model)) is not None:
                self._chronicle.forgiven(model, failure, "its checks or timeouts have changed")
                forgiven = True
        return forgiven

    def _renew(self, books: Books, desired: Desired | None) -> bool:
        """Whether engines have changed."""
        before, now = self._known, self._inventory()
        if now is before:
            return False
        self._known = now
        if not before.known:  # whether they are others than an earlier agent's, the archive says
            return True
        self._chronicle.engines(before, now)
        for model in desired.models if desired is not None else ():
            others = set(_builds_for(model.spec, now)) - set(_builds_for(model.spec, before))
            failure = books.renew(model.name) if others else None
            if failure is not None:
                what = " and ".join(sorted(build.detail for build in others))
                self._chronicle.forgiven(model.name, failure, f"there is another engine: {what}")
        return True

    def _obey(self, books: Books, desired: Desired | None) -> bool:
        """Whether somebody asked."""
        commands = self._commands.take()
        for command in commands:
            self._chronicle.asked(command)
            forgiven = set(self._retry(books, command.model, desired) if command.retry else ())
            self._pushes.hurry(command.model)
            self._mendings.hurry(command.model)
            self._offers.hurry()
            if not command.done.done():
                asked = {command.model} if command.retry and command.model is not None else set()
                told = {name: _why_not(name, desired) for name in sorted(forgiven | asked)}
                command.done.set_result(
                    {name: why for name, why in told.items() if name in forgiven or why}
                )
        return bool(commands)

    def _retry(
        self, books: Books, model: ModelName | None, desired: Desired | None
    ) -> Mapping[ModelName, Failure]:
        """Forget the failures of a model, or of all; gives what they were."""
        forgiven = books.forgive(model)
        self._reverts.forget(model)
        for name, failure in forgiven.items():
            self._chronicle.forgiven(name, failure, "an operator asked for another try")
        for each in desired.models if desired is not None else ():
            if model in (None, each.name):
                for spec in filter(None, (each.spec, each.fallback)):
                    self._mendings.try_anew(spec)
        self._comparisons.hurry(model)
        return forgiven


def _why_not(model: ModelName, desired: Desired | None) -> str | None:
    """Why it is not tried though nothing is held against it any more; None: it is."""
    if desired is None or not desired.suspends(model):
        return None
    by = desired.suspension_of(model)
    return f"suspended {by.said}" if by is not None else "suspended"


def _builds_for(spec: ModelSpec, inventory: Inventory) -> Iterator[Build]:
    """Those that it may run on."""
    for build in inventory.builds:
        if build.name == spec.engine and (spec.engine or spec.backend in ("auto", build.id)):
            yield build
