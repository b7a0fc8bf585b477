"""What is next for one model, or why nothing is; and when a failure is tried again."""

from dataclasses import dataclass, replace

from reconciler.plan.actions import Action
from reconciler.plan.case import Case
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import Failure
from reconciler.plan.phase import State
from reconciler.plan.retry import next_attempt_at, told
from reconciler.plan.wording import span

_BLOCKED = (
    "blocked until the manifest, the files or the node change, or `xgen-model reconcile --retry`"
)
_DAMAGED = (
    "blocked until the hub holds another file there, the manifest changes, or "
    "`xgen-model reconcile --retry`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """When a failure is tried again: the moment, and how long after the failure that is."""

    at: float
    delay_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next action for a model, or why there is none.

    `state` and `reason` speak of the desired instance, as they are once the action is dispatched.
    `needs_room`: the action loads a model, or makes way for that: it is granted only together with
    a load slot and the devices. `surges`: it loads it beside the process that serves; where there
    is no room for both, `instead` is done. `stays`: it needs other devices for that than the spare
    ones: those that the process holds. `deadline`: when a load has taken too long, or a rail lets
    go. `held`: the action that a rail holds back (`rails`).
    """

    state: State
    reason: str
    action: Action | None = None
    needs_room: bool = False
    surges: bool = False
    instead: "Step | None" = None
    stays: bool = False
    retry: Retry | None = None
    deadline: float | None = None
    held: Action | None = None

    @property
    def explained(self) -> str:
        """The reason, and when there will be another try. It says the same at every tick."""
        if self.retry is None:
            return self.reason
        return f"{self.reason}; next try after {span(self.retry.delay_seconds)}"

    def waiting(self, reason: str) -> "Step":
        """The same step without its action, for this reason."""
        if self.action is None:
            return self
        under_way = self.state in (State.CACHING, State.LOADING)
        return Step(state=State.PENDING if under_way else self.state, reason=reason)


def failed(model: ModelName, failure: Failure) -> Step:
    """What is said of it until it is tried again."""
    due = next_attempt_at(failure, key=model)
    if due is None:
        why = f"{told(failure)}; {_DAMAGED if failure.damaged else _BLOCKED}"
        return Step(state=State.BLOCKED, reason=why)
    retry = Retry(at=due, delay_seconds=due - failure.at)
    return Step(state=State.ERROR, reason=told(failure), retry=retry)


def stop_failed(case: Case, now: float) -> tuple[str, Retry] | None:
    """Why the last stop failed, while the next try of it is not due."""
    failure = case.seen.failure
    if failure is None or failure.during != "stop":
        return None
    due = next_attempt_at(replace(failure, permanent=False), key=case.name) or now
    if now >= due:
        return None
    return failure.reason, Retry(at=due, delay_seconds=due - failure.at)
