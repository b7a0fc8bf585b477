"""What the loop remembers of each model between ticks: failures, restarts, what loaded once."""

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.apply.backends import BackendExited, BackendView
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched, Outcome
from reconciler.plan.ids import Instance, ModelName, Nonce, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.retry import after_failure

_RECENT = 5
"""Failures of a model that operators can look up."""


class RestartCause(StrEnum):
    """How the process before ended: a crash, a load that failed, our stop of one that did nothing
    any more, or for a change."""

    CRASHED = "crashed"
    HUNG = "hung"
    LOAD_FAILED = "load_failed"
    CHANGED = "changed"


_OF_ENGINES = ("start", "load", "run")
_CAUSES = {"run": RestartCause.CRASHED, "load": RestartCause.LOAD_FAILED}


@dataclass(slots=True)
class _Page:
    """One model's page. `loaded`: instances that were loaded here at least once. `resuming`: as in
    `ObservedModel`."""

    failure: Failure | None = None
    recent: deque[Failure] = field(default_factory=lambda: deque(maxlen=_RECENT))
    cause: RestartCause = RestartCause.CHANGED
    restarts: Counter[RestartCause] = field(default_factory=Counter)
    last_lines: tuple[str, ...] = ()
    starts: int = 0
    resuming: bool = False
    loaded: set[Instance] = field(default_factory=set)


class Books:
    """Kept by the loop alone (R1). A model's page goes when the model is gone.

    Only failures of what is desired are booked: another's would lift that one's block.
    """

    def __init__(self) -> None:
        self._pages: dict[ModelName, _Page] = {}
        self._instances: dict[Nonce, Instance] = {}
        self._last_words: dict[Nonce, tuple[str, ...]] = {}
        self._desired: Mapping[ModelName, Collection[SpecHash]] = {}

    def failure(self, model: ModelName) -> Failure | None:
        return self._page(model).failure

    def failures_in_a_row(self, model: ModelName) -> int:
        failure = self.failure(model)
        return failure.count if failure else 0

    def recent_failures(self, model: ModelName) -> tuple[Failure, ...]:
        """The last ones, oldest first; a success since does not take them away."""
        return tuple(self._page(model).recent)

    def last_lines(self, model: ModelName) -> tuple[str, ...]:
        return self._page(model).last_lines

    def restarts(self, model: ModelName) -> int:
        return max(0, self._page(model).starts - 1)

    def restart_causes(self, model: ModelName) -> tuple[tuple[str, int], ...]:
        return tuple(sorted((cause.value, n) for cause, n in self._page(model).restarts.items()))

    def resuming(self, model: ModelName) -> bool:
        return self._page(model).resuming

    def forgive(self, model: ModelName | None) -> Mapping[ModelName, Failure]:
        """Forget the failure of a model, or of all, so that it is tried at once (R7)."""
        forgiven = {
            name: page.failure
            for name, page in self._pages.items()
            if page.failure is not None and model in (None, name)
        }
        for name in forgiven:
            self._pages[name].failure = None
        return forgiven

    def mend(self, model: ModelName) -> Failure | None:
        """Forget that the hub held damaged files: it holds others now. None: it was not so."""
        failure = self.failure(model)
        if failure is None or not failure.damaged:
            return None
        self._page(model).failure = None
        return failure

    def renew(self, model: ModelName) -> Failure | None:
        """Forget what went wrong with a process: it would be another engine's now. None: nothing
        did."""
        failure = self.failure(model)
        if failure is None or failure.during not in _OF_ENGINES:
            return None
        self._page(model).failure = None
        return failure

    def hurry_fetches(self) -> bool:
        """Forget failed fetches: there may be room now. Whether there were any."""
        failed = [
            page
            for page in self._pages.values()
            if page.failure is not None
            and page.failure.during == "fetch"
            and not page.failure.permanent
        ]
        for page in failed:
            page.failure = None
        return bool(failed)

    def want(self, desired: Mapping[ModelName, Collection[SpecHash]]) -> None:
        """Note which specs are desired now, and which downloads."""
        self._desired = desired

    def see(self, view: BackendView) -> None:
        """Note a live backend: a start is counted once, a load is remembered. To adopt one is no
        start."""
        page = self._page(view.model)
        if view.nonce not in self._instances:
            self._instances[view.nonce] = view.instance
            if view.adopted is not None:
                page.starts = max(page.starts, 1)
            else:
                self._count_start(page)
            page.resuming = False
        if view.was_loaded:
            page.loaded.add(view.instance)

    def book_exit(self, exited: BackendExited) -> None:
        self._page(exited.model).cause = _CAUSES.get(exited.during, RestartCause.CHANGED)
        if exited.during == "stop":
            self._last_words[exited.nonce] = exited.last_lines
            return  # `BackendStopped` follows, and says whether the stop was a failure
        self._instances.pop(exited.nonce, None)
        if not self._wanted(exited.model, exited.instance.spec_hash):
            return
        page = self._page(exited.model)
        page.last_lines = exited.last_lines
        page.failure = after_failure(
            page.failure,
            spec_hash=exited.instance.spec_hash,
            files_digest=exited.instance.files_digest,
            at=exited.at,
            reason=exited.reason,
            during=exited.during,
            ever_loaded=exited.instance in page.loaded,
            loaded_seconds=exited.loaded_seconds if exited.during == "run" else None,
        )
        page.recent.append(page.failure)

    def book_outcome(self, outcome: Outcome, *, at: float) -> None:
        match outcome:
            case FilesFetched():
                page = self._page(outcome.model)
                if page.failure and page.failure.during == "fetch":
                    page.failure = None
            case EffectFailed():
                self._book_effect(outcome, at)
            case BackendStopped():
                self._book_stop(outcome, at)

    def keep_only(self, models: Collection[ModelName]) -> None:
        for gone in self._pages.keys() - set(models):
            del self._pages[gone]

    def _book_effect(self, failed: EffectFailed, at: float) -> None:
        # A stop that failed counts for what is not wanted any more too: it spaces out the stops.
        if failed.during != "stop" and not self._wanted(failed.model, failed.spec_hash):
            return
        page = self._page(failed.model)
        page.last_lines = ()
        page.failure = after_failure(
            page.failure,
            spec_hash=failed.spec_hash,
            files_digest=failed.files_digest,
            at=at,
            reason=failed.reason,
            during=failed.during,
            permanent=failed.permanent,
            damaged=failed.damaged,
            own_files_in_the_way=failed.own_files_in_the_way,
            retry_after_seconds=failed.retry_after_seconds,
        )
        page.recent.append(page.failure)

    def _book_stop(self, stopped: BackendStopped, at: float) -> None:
        instance = self._instances.pop(stopped.nonce, None)
        last_lines = self._last_words.pop(stopped.nonce, ())
        page = self._page(stopped.model)
        if page.failure and page.failure.during == "stop":
            page.failure = None
        page.resuming = stopped.failure is None
        if stopped.failure is None or instance is None:
            return
        hung = stopped.ran_seconds is not None
        page.cause = RestartCause.HUNG if hung else RestartCause.LOAD_FAILED
        if not self._wanted(stopped.model, instance.spec_hash):
            return
        page.last_lines = last_lines
        page.failure = after_failure(
            page.failure,
            spec_hash=instance.spec_hash,
            files_digest=instance.files_digest,
            at=at,
            reason=stopped.failure,
            during="run" if hung else "load",
            ever_loaded=instance in page.loaded,
            loaded_seconds=stopped.ran_seconds,
        )
        page.recent.append(page.failure)

    def _count_start(self, page: _Page) -> None:
        if page.starts:
            page.restarts[page.cause] += 1
        page.starts += 1

    def _wanted(self, model: ModelName, spec_hash: SpecHash) -> bool:
        return spec_hash in self._desired.get(model, ())

    def _page(self, model: ModelName) -> _Page:
        page = self._pages.get(model)
        if page is None:
            page = self._pages[model] = _Page()
        return page
