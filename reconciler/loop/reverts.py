"""Which models of this node are as they last were good, for what is wanted is not to be had (R7).

What is given on is a model like any other, so that it is started, watched and stopped as any; the
status shows beside it what is wanted, and why that is not there.
"""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from reconciler.apply.backends import BackendView
from reconciler.backend.engines import Assessment
from reconciler.loop.books import Books
from reconciler.loop.observation import Look, Looks, Seen
from reconciler.plan.actions import Outlook, Plan, Target
from reconciler.plan.desired import Desired, DesiredModel, ModelSpec
from reconciler.plan.fallbacks import hashes
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import FilesDigest, Instance, ModelName, SpecHash
from reconciler.plan.next_action import failed
from reconciler.plan.observed import EffectKind, Failure, FilesCached
from reconciler.plan.phase import State
from reconciler.plan.revert import (
    LastGood,
    Situation,
    Trouble,
    may_revert,
    reverted,
    reverts,
)

_HOPELESS = frozenset({State.ERROR, State.BLOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversion:
    """One model that is as it last was good. `files`: those that the manifest's spec would have."""

    wanted: DesiredModel
    good: LastGood
    trouble: Trouble
    files: FilesCached | None = None

    def told(self, now: Outlook, *, suspended: bool) -> str | None:
        """As a clause of which the model is the subject; None: the last good one neither serves
        nor comes."""
        if now.state in _HOPELESS or (suspended and now.process is None):
            return None
        does = "runs" if now.state is State.LOADED else "goes back to"
        what = f"{does} its last good spec {self.good.spec_hash}{self.difference}"
        return f"{what}: {self.trouble.reason}"

    @property
    def difference(self) -> str:
        """What cannot be had instead."""
        if self.wanted.spec_hash != self.good.spec_hash:
            return f" instead of {self.wanted.spec_hash}"
        return f" on files {self.good.files_digest[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """What nothing on this node can run, as it was found."""

    spec: ModelSpec
    files: FilesDigest | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    given: Desired | None = None
    desired: Desired | None = None
    reversions: Mapping[ModelName, Reversion] = field(default_factory=dict)


class Reverts:
    """Kept by the loop alone. `files`: what of a spec is here. `builds`: the engines; the very same
    while nothing is new."""

    def __init__(
        self,
        files: Callable[[ModelSpec], FilesCached | None],
        builds: Callable[[], object] = tuple,
    ) -> None:
        self._files = files
        self._builds = builds
        self._known_builds = builds()
        self._roll: Roll | None = None
        self._refused: Mapping[ModelName, _Refused] = {}
        self._last = _Settled()

    def copy(self) -> "Reverts":
        """For a rehearsal: it knows the same, and learns for itself."""
        return copy(self)

    def with_files(self, files: Callable[[ModelSpec], FilesCached | None]) -> "Reverts":
        """The same, that looks for files there."""
        other = copy(self)
        other._files = files
        return other

    @property
    def reversions(self) -> Mapping[ModelName, Reversion]:
        return self._last.reversions

    def settle(self, given: Desired | None, seen: Seen, books: Books, now: float) -> Desired | None:
        """The very value of the call before, unless there is news. For a thread: it may look for
        files."""
        models = given.models if given is not None else ()
        found = {
            model.name: reversion
            for model in models
            if (reversion := self._reversion(model, seen, books, now)) is not None
        }
        if given is not self._last.given or found != self._last.reversions:
            desired = given
            if given is not None and found:
                desired = replace(given, models=tuple(_put(each, found) for each in given.models))
            self._last = _Settled(given=given, desired=desired, reversions=found)
        return self._last.desired

    def learn(self, looks: Looks, roll: Roll | None) -> bool:
        """Whether models are to be settled anew: what nothing here can run is known now, or there
        are other GPUs or engines, with which that may be otherwise."""
        lasting, builds = roll.lasting if roll is not None else None, self._builds()
        if lasting != self._roll or builds is not self._known_builds:
            self._roll, self._known_builds = lasting, builds
            if self._refused:
                self._refused = {}
                return True
        refused = {
            name: _Refused(
                spec=look.desired.spec,
                files=look.files.digest if look.files is not None else None,
                reason=look.assessment.refusal,
            )
            for name, look in looks.items()
            if look.assessment.refusal is not None and name not in self._last.reversions
        }
        kept = {name: each for name, each in self._refused.items() if name in self._last.reversions}
        before, self._refused = self._refused, {**kept, **refused}
        return self._refused != before

    def later(self, books: Books) -> Mapping[ModelName, tuple[ModelSpec, ...]]:
        """What may come back of the models that the manifest has, and what will be tried again."""
        given = self._last.given.models if self._last.given is not None else ()
        goods = {model.name: books.last_good(model.name) for model in given}
        later = {name: (good.spec,) for name, good in goods.items() if good is not None}
        for name, each in self._last.reversions.items():
            later[name] = (*later.get(name, ()), each.wanted.spec)
        return later

    @property
    def given(self) -> Desired | None:
        """As the manifest has it."""
        return self._last.given

    def told(self, made: Plan) -> Mapping[ModelName, str]:
        """Of each model whose last good spec serves or comes: why it is not as the manifest has
        it."""
        told = {each.model: self.degraded(each) for each in made.outlook}
        return {model: why for model, why in told.items() if why is not None}

    def degraded(self, now: Outlook) -> str | None:
        """Why it is not as the manifest has it; None: it is, or its last good spec does not come
        back either."""
        reversion = self._last.reversions.get(now.model)
        return (
            reversion.told(now, suspended=self._suspends(now.model))
            if reversion is not None
            else None
        )

    def failure(self, model: ModelName, books: Books) -> Failure | None:
        """The one that counts: of what is wanted, whatever became of the last good one."""
        reversion = self._last.reversions.get(model)
        if reversion is None:
            return books.failure(model)
        return books.failure_of(reversion.wanted, reversion.files)

    def forget(self, model: ModelName | None) -> None:
        """Somebody asks for another try of one model, or of all."""
        self._refused = {
            name: each for name, each in self._refused.items() if model not in (None, name)
        }

    def as_wanted(self, looks: Looks) -> Looks:
        """The looks, with the manifest's own specs, of which nothing is known but the files."""
        if not self._last.reversions:
            return looks
        return {
            **looks,
            **{
                name: Look(desired=each.wanted, files=each.files, assessment=Assessment())
                for name, each in self._last.reversions.items()
            },
        }

    def shown(self, made: Plan, now: float) -> Plan:
        """The plan, with what is wanted beside what is given instead of it."""
        reversions = self._last.reversions
        if not reversions:
            return made
        outlook = tuple(
            _shown(each, reversions[each.model], suspended=self._suspends(each.model))
            if each.model in reversions
            else each
            for each in made.outlook
        )
        dues = [each.trouble.due for each in reversions.values() if each.trouble.due is not None]
        times = [due for due in dues if due > now]
        if made.next_at is not None:
            times.append(made.next_at)
        return replace(made, outlook=outlook, next_at=min(times, default=None))

    def _suspends(self, model: ModelName) -> bool:
        return self._last.given is not None and self._last.given.suspends(model)

    def _reversion(
        self, model: DesiredModel, seen: Seen, books: Books, now: float
    ) -> Reversion | None:
        good = books.last_good(model.name)
        if good is None or not may_revert(model):
            return None
        refused = self._refused.get(model.name)
        if refused is None and books.failure(model.name) is None:
            return None
        files = self._files(model.spec)
        trouble = self._trouble(model, files, refused, books)
        runs, loads = _instances(model.name, seen, good, files)
        if files is not None and good.files_digest == files.former:
            good = replace(good, files_digest=files.digest)
        situation = Situation(
            wanted=model,
            files_digest=files.digest if files is not None else None,
            last_good=good,
            trouble=trouble,
            runs=runs,
            loads=loads,
            reverted=model.name in self._last.reversions,
        )
        if trouble is None or not reverts(situation, now):
            return None
        return Reversion(wanted=model, good=good, trouble=trouble, files=files)

    def _trouble(
        self, model: DesiredModel, files: FilesCached | None, refused: _Refused | None, books: Books
    ) -> Trouble | None:
        digest = files.digest if files is not None else None
        if refused is not None and (refused.spec, refused.files) == (model.spec, digest):
            return Trouble(reason=refused.reason)
        failure = books.failure_of(model, files)
        if failure is None or failure.during == "run":
            return None
        step = failed(model.name, failure)
        due = step.retry.at if step.retry is not None else None
        return Trouble(reason=step.explained, due=due, costly=failure.costly)


def note_good(books: Books, looks: Looks, seen: Seen) -> None:
    """Enter what is loaded as what is to come back, and how long it took to load."""
    for name, look in looks.items():
        books.stopwatch.see(look.desired, seen.views.get(name, ()))
        if not look.desired.keep_last_good:
            books.note_good(name, None)
        elif (good := good_of(look, seen.views.get(name, ()))) is not None:
            books.note_good(name, good)


def want(books: Books, desired: Desired | None) -> None:
    """Note of which specs failures count: those that are wanted, and that may come back."""
    models = desired.models if desired is not None else ()
    books.want(
        {model.name: hashes(model) | _hashes_of(books.last_good(model.name)) for model in models},
        {model.name: model.on_failure for model in models},
    )


def good_of(look: Look, views: Collection[BackendView]) -> LastGood | None:
    """What is loaded and is as its look says; None: nothing is."""
    files = look.files
    if files is None:
        return None
    for view in views:
        instance = view.instance
        is_it = instance.spec_hash == look.desired.spec_hash
        if (
            is_it
            and view.loaded_at is not None
            and instance.files_digest in (files.digest, files.former)
        ):
            return LastGood(
                spec=replace(look.desired.spec, digest=files.revision),
                spec_hash=instance.spec_hash,
                files_digest=files.digest,
                gpus=view.gpus,
            )
    return None


def _hashes_of(good: LastGood | None) -> frozenset[SpecHash]:
    """What its failures, and those of its downloads, are known by."""
    if good is None:
        return frozenset()
    digest = good.spec.digest
    pinned = {SpecHash(f"{good.spec_hash}@{digest}")} if digest is not None else set()
    return frozenset({good.spec_hash, *pinned})


def _put(model: DesiredModel, reversions: Mapping[ModelName, Reversion]) -> DesiredModel:
    reversion = reversions.get(model.name)
    return model if reversion is None else reverted(model, reversion.good)


def _instances(
    name: ModelName, seen: Seen, good: LastGood, files: FilesCached | None
) -> tuple[frozenset[Instance], frozenset[Instance]]:
    """A catalog may have given the same bytes another digest (R4)."""
    views = seen.views.get(name, ())
    if files is not None:
        known = {files.former: files.digest}
        views = tuple(
            replace(
                view,
                instance=replace(
                    view.instance,
                    files_digest=known.get(view.instance.files_digest, view.instance.files_digest),
                ),
            )
            for view in views
        )
    runs = {view.instance for view in views}
    loads = {view.instance for view in views if view.loaded_at is None}
    effect = seen.in_flight.get(name)
    starts = effect is not None and effect.kind is EffectKind.START
    if effect is not None and starts and effect.spec_hash == good.spec_hash:
        runs.add(good.instance)
        loads.add(good.instance)
    return frozenset(runs), frozenset(loads)


def _shown(outlook: Outlook, reversion: Reversion, *, suspended: bool) -> Outlook:
    trouble = reversion.trouble
    target = Target(
        spec_hash=reversion.wanted.spec_hash,
        state=State.BLOCKED if trouble.due is None else State.ERROR,
        reason=trouble.reason,
    )
    if reversion.told(outlook, suspended=suspended) is None:
        reason = (
            f"cannot go back to the last good spec {reversion.good.spec_hash}: {outlook.reason}"
        )
    else:
        reason = f"{outlook.reason}; the last good spec{reversion.difference}"
    dues = [due for due in (outlook.retry_at, trouble.due) if due is not None]
    return replace(outlook, reason=reason, target=target, retry_at=min(dues, default=None))
