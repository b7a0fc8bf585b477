"""What the loop remembers of each model between ticks: failures, restarts, what loaded once."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from reconciler.apply.backends import BackendExited, BackendView
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched, Outcome
from reconciler.backend.usage import refused_arguments
from reconciler.loop.pages import Key, Page
from reconciler.loop.stopwatch import Stopwatch
from reconciler.plan.desired import DesiredModel, OnFailure
from reconciler.plan.durations import UNTIMED, Durations
from reconciler.plan.ids import FilesDigest, Instance, ModelName, Nonce, SpecHash
from reconciler.plan.observed import Failure, FilesCached
from reconciler.plan.retry import after_failure
from reconciler.plan.revert import LastGood
from reconciler.status import RestartCause

_KEPT_INSTANCES = 32
"""Of a model, the newest: so many that failed, and so many that were loaded."""


_OF_ENGINES = ("start", "load", "run")
_CAUSES = {"run": RestartCause.CRASHED, "load": RestartCause.LOAD_FAILED}


class Books:
    """Kept by the loop alone (R1). A model's page goes when the model is gone.

    Failures are booked of what is desired, or was last good; each counts for its instance alone.
    """

    def __init__(self) -> None:
        self._pages: dict[ModelName, Page] = {}
        self._instances: dict[Nonce, tuple[ModelName, Instance]] = {}
        self._last_words: dict[Nonce, tuple[Instance, tuple[str, ...]]] = {}
        self._desired: Mapping[ModelName, Collection[SpecHash]] = {}
        self._policies: Mapping[ModelName, OnFailure] = {}
        self.stopwatch = Stopwatch()

    def copy(self) -> "Books":
        """For somebody else, who may write in it. How long things have taken is left out."""
        other = Books()
        other._pages = {name: page.copy() for name, page in self._pages.items()}
        other._instances = dict(self._instances)
        other._last_words = dict(self._last_words)
        other._desired, other._policies = self._desired, self._policies
        return other

    def models(self) -> tuple[ModelName, ...]:
        return tuple(self._pages)

    def failure(self, model: ModelName) -> Failure | None:
        """The newest one."""
        page = self._page(model)
        return page.stuck or next(reversed(page.failures.values()), None)

    def failure_of(self, model: DesiredModel, files: FilesCached | None) -> Failure | None:
        """The newest one of this spec over these files; None: to get some."""
        page = self._page(model.name)
        digests = {None} if files is None else {None, files.digest, files.former}
        for (spec_hash, digest, of_fetch), failure in reversed(page.failures.items()):
            key = model.fetch_key if of_fetch else model.spec_hash
            if spec_hash == key and digest in digests and (files is None or not of_fetch):
                return failure
        return None

    def stuck(self, model: ModelName) -> Failure | None:
        """The stop that failed last, until one succeeds."""
        return self._page(model).stuck

    def last_good(self, model: ModelName) -> LastGood | None:
        return self._page(model).last_good

    def note_good(self, model: ModelName, good: LastGood | None) -> None:
        """What is to come back if its successor fails; None: nothing."""
        self._page(model).last_good = good

    def loaded(self, model: ModelName) -> tuple[Instance, ...]:
        """The instances that were loaded here, the newest last."""
        return tuple(self._page(model).loaded)

    def lasting(self, model: ModelName) -> tuple[Failure, ...]:
        """What is not tried again by itself, costs so much that each try counts, is a crash loop,
        or a crash or a load that failed and has not gone well since."""
        page = self._page(model)
        return tuple(
            each
            for key, each in page.failures.items()
            if each.permanent
            or each.costly
            or each.is_crash_loop
            or (each.during in ("load", "run") and key not in page.passed)
        )

    def restore(
        self,
        model: ModelName,
        *,
        failures: Collection[Failure],
        loaded: Collection[Instance],
        last_good: LastGood | None,
        durations: Durations = UNTIMED,
        restarts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """What an agent before this one has kept of it. `restarts`: by cause; those that this
        release does not know are left out."""
        page = self._page(model)
        for failure in failures:
            page.failures[_key(failure)] = failure
        page.loaded.update(dict.fromkeys(loaded))
        page.last_good = last_good
        page.restarts.update({each: restarts[each] for each in RestartCause if each in restarts})
        self.stopwatch.restore(model, durations)

    def failures_in_a_row(self, model: ModelName) -> int:
        failure = self.failure(model)
        return failure.count if failure else 0

    def recent_failures(self, model: ModelName) -> tuple[Failure, ...]:
        """The last ones, oldest first; a success since does not take them away."""
        return tuple(self._page(model).recent)

    def last_lines(self, model: ModelName) -> tuple[str, ...]:
        return self._page(model).last_lines

    def restarts(self, model: ModelName) -> int:
        """Of this agent and those before it; to start it after an agent that ended is none."""
        return self._page(model).restarts.total()

    def restart_causes(self, model: ModelName) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((cause.value, n) for cause, n in self._page(model).restarts.items()))

    def resuming(self, model: ModelName) -> bool:
        return self._page(model).resuming

    def forgive(self, model: ModelName | None) -> Mapping[ModelName, Failure]:
        """Forget the failure of a model, or of all, so that it is tried at once (R7)."""
        forgiven = {
            name: failure
            for name in self._pages
            if model in (None, name) and (failure := self.failure(name)) is not None
        }
        for name in forgiven:
            self._pages[name].failures.clear()
            self._pages[name].stuck = None
        return forgiven

    def lift(self, model: ModelName, failure: Failure) -> None:
        """Forget this one."""
        self._page(model).failures.pop(_key(failure), None)

    def mend(self, model: ModelName) -> Failure | None:
        """Forget that the hub held damaged files: it holds others now. None: it was not so."""
        return self._forget(model, lambda failure: failure.damaged)

    def renew(self, model: ModelName) -> Failure | None:
        """Forget what went wrong with a process: it would be another engine's now. None: nothing
        did."""
        return self._forget(model, lambda failure: failure.during in _OF_ENGINES)

    def recheck(self, model: ModelName) -> Failure | None:
        """Forget what went wrong with a load: it has other checks, or more time, now. None: nothing
        did."""
        return self._forget(model, lambda failure: failure.during == "load")

    def hurry_fetches(self) -> bool:
        """Forget failed fetches: there may be room now. Whether there were any."""
        forgotten = [
            self._forget(name, lambda each: each.during == "fetch" and not each.permanent)
            for name in tuple(self._pages)
        ]
        return any(each is not None for each in forgotten)

    def want(
        self,
        desired: Mapping[ModelName, Collection[SpecHash]],
        policies: Mapping[ModelName, OnFailure] = MappingProxyType({}),
    ) -> None:
        """Note which specs are desired now, and which downloads; and what their failures mean."""
        self._desired = desired
        self._policies = policies

    def see(self, view: BackendView) -> None:
        """Note a live backend: a start is counted once, a load is remembered. To adopt one is no
        start; one beside another that lives is the model's once it serves in its place."""
        page = self._page(view.model)
        if view.nonce not in self._instances:
            if not view.was_loaded and self._living(view.model):
                page.beside.add(view.nonce)
            elif view.adopted is not None:
                page.starts = max(page.starts, 1)
            else:
                self._count_start(page)
            self._instances[view.nonce] = (view.model, view.instance)
            page.resuming = False
        elif view.was_loaded and view.nonce in page.beside:
            page.beside.discard(view.nonce)
            self._count_start(page)
        if view.was_loaded and (key := (*_parts(view.instance), False)) in page.failures:
            page.passed.add(key)
        if view.was_loaded and view.instance not in page.loaded:
            page.loaded[view.instance] = None
            while len(page.loaded) > _KEPT_INSTANCES:
                del page.loaded[next(iter(page.loaded))]

    def book_exit(self, exited: BackendExited) -> None:
        if exited.during == "stop":
            self._last_words[exited.nonce] = (exited.instance, exited.last_lines)
            self._instances.pop(exited.nonce, None)
            return  # `BackendStopped` follows, and says whether the stop was a failure
        self._instances.pop(exited.nonce, None)
        self._note_end(exited.model, exited.nonce, _CAUSES[exited.during])
        if not self._wanted(exited.model, exited.instance.spec_hash):
            return
        page = self._page(exited.model)
        page.last_lines = exited.last_lines
        before = page.failures.get((*_parts(exited.instance), False))
        refused = refused_arguments(exited.code, exited.last_lines)
        failure = after_failure(
            before,
            spec_hash=exited.instance.spec_hash,
            files_digest=exited.instance.files_digest,
            at=exited.at,
            reason=f"{exited.reason}: {refused}" if refused else exited.reason,
            during=exited.during,
            permanent=refused is not None,
            ever_loaded=exited.instance in page.loaded,
            costly=self._costs(exited.model, exited.instance),
            loaded_seconds=exited.loaded_seconds if exited.during == "run" else None,
        )
        self._enter(exited.model, failure)

    def book_outcome(self, outcome: Outcome, *, at: float) -> None:
        self.stopwatch.book(outcome, at=at)
        match outcome:
            case FilesFetched():
                self._forget(outcome.model, lambda failure: failure.during == "fetch")
            case EffectFailed():
                self._book_effect(outcome, at)
            case BackendStopped():
                self._book_stop(outcome, at)

    def keep_only(self, models: Collection[ModelName]) -> None:
        self.stopwatch.keep_only(models)
        for gone in self._pages.keys() - set(models):
            del self._pages[gone]

    def _book_effect(self, failed: EffectFailed, at: float) -> None:
        # A stop that failed counts for what is not wanted any more too: it spaces out the stops.
        if failed.during != "stop" and not self._wanted(failed.model, failed.spec_hash):
            return
        page = self._page(failed.model)
        page.last_lines = ()
        key = (failed.spec_hash, failed.files_digest, failed.during == "fetch")
        before = page.stuck if failed.during == "stop" else page.failures.get(key)
        instance = _instance(failed)
        failure = after_failure(
            before,
            spec_hash=failed.spec_hash,
            files_digest=failed.files_digest,
            at=at,
            reason=failed.reason,
            during=failed.during,
            permanent=failed.permanent,
            damaged=failed.damaged,
            own_files_in_the_way=failed.own_files_in_the_way,
            ever_loaded=instance in page.loaded,
            costly=instance is not None and self._costs(failed.model, instance),
            shortage=failed.shortage,
            retry_after_seconds=failed.retry_after_seconds,
        )
        if failed.during != "stop":
            self._enter(failed.model, failure)
        else:
            page.stuck = failure
            page.recent.append(failure)

    def _book_stop(self, stopped: BackendStopped, at: float) -> None:
        _, instance = self._instances.pop(stopped.nonce, (None, None))
        instance, last_lines = self._last_words.pop(stopped.nonce, (instance, ()))
        page = self._page(stopped.model)
        page.stuck = None
        page.resuming = stopped.failure is None and not self._living(stopped.model)
        if instance is None:  # nobody knows it, or it has ended before it was told to
            return
        hung, cause = stopped.ran_seconds is not None, RestartCause.CHANGED
        if stopped.failure is not None:
            cause = RestartCause.HUNG if hung else RestartCause.LOAD_FAILED
        self._note_end(stopped.model, stopped.nonce, cause)
        if stopped.failure is None:
            return
        if not self._wanted(stopped.model, instance.spec_hash):
            return
        page.last_lines = last_lines
        failure = after_failure(
            page.failures.get((*_parts(instance), False)),
            spec_hash=instance.spec_hash,
            files_digest=instance.files_digest,
            at=at,
            reason=stopped.failure,
            during="run" if hung else "load",
            exited=False,
            ever_loaded=instance in page.loaded,
            costly=self._costs(stopped.model, instance),
            loaded_seconds=stopped.ran_seconds,
        )
        self._enter(stopped.model, failure)

    def _enter(self, model: ModelName, failure: Failure) -> None:
        page = self._page(model)
        stops = self._policies.get(model) is OnFailure.STOP
        tells = failure.during in ("start", "load") and not failure.shortage
        if stops and tells and not failure.ever_loaded:
            failure = replace(failure, permanent=True)
        key = _key(failure)
        page.failures.pop(key, None)
        page.failures[key] = failure
        page.passed.discard(key)
        page.passed &= page.failures.keys()
        while len(page.failures) > _KEPT_INSTANCES:
            del page.failures[next(iter(page.failures))]
        page.recent.append(failure)

    def _costs(self, model: ModelName, instance: Instance) -> bool:
        """Whether each try of it ends another one that is good, and is not there beside it."""
        good = self._page(model).last_good
        if good is None or self._policies.get(model) is not OnFailure.REVERT:
            return False
        return good.instance != instance and good.instance not in self._living(model)

    def _living(self, model: ModelName) -> list[Instance]:
        return [other for name, other in self._instances.values() if name == model]

    def _forget(self, model: ModelName, what: Callable[[Failure], bool]) -> Failure | None:
        """The newest of those that are forgotten."""
        failures = self._page(model).failures
        gone = {key: failure for key, failure in failures.items() if what(failure)}
        for key in gone:
            del failures[key]
        return next(reversed(gone.values()), None)

    def _note_end(self, model: ModelName, nonce: Nonce, cause: RestartCause) -> None:
        """Of one that was to take another's place: a try that failed, and no end of the model's own
        process. Its end makes way for the one beside it at once."""
        page = self._page(model)
        if nonce in page.beside:
            page.beside.discard(nonce)
            return
        page.cause = cause
        page.beside &= self._instances.keys()
        if page.beside:
            page.beside.pop()
            self._count_start(page)

    def _count_start(self, page: Page) -> None:
        if page.starts:
            page.restarts[page.cause] += 1
        page.starts += 1
        page.cause = RestartCause.CHANGED  # unless one ends before the next start

    def _wanted(self, model: ModelName, spec_hash: SpecHash) -> bool:
        return spec_hash in self._desired.get(model, ())

    def _page(self, model: ModelName) -> Page:
        page = self._pages.get(model)
        if page is None:
            page = self._pages[model] = Page()
        return page


def _key(failure: Failure) -> Key:
    return failure.spec_hash, failure.files_digest, failure.during == "fetch"


def _parts(instance: Instance) -> tuple[SpecHash, FilesDigest]:
    return instance.spec_hash, instance.files_digest


def _instance(failed: EffectFailed) -> Instance | None:
    """What was to be started; None: that is not known, or it was something else that failed."""
    if failed.during != "start" or failed.files_digest is None:
        return None
    return Instance(spec_hash=failed.spec_hash, files_digest=failed.files_digest)
