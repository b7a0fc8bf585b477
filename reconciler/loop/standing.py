"""How a model stands to what is wanted of it, and a node to all of its models (PURE).

For a model at most one of these is so; then `Ready` is False, and says the same:

    Reconciling   something is under way, or comes by itself: a download, a load, the next try
    Stalled       nothing comes before somebody changes something
    held          a change is wanted, and a rail holds it back: neither of the two

`Ready` is True where nothing of that is so and the wanted instance serves. `Degraded` stands beside
them: a fault costs the model something.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.loop.conditions import Fact
from reconciler.loop.intent import Understanding
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from reconciler.status import ModelStatus

_NAMED = 5
"""Models in one message; all of them have conditions of their own."""
_ON_THE_WAY = {
    State.PENDING: Reason.WAITING,
    State.CACHING: Reason.FETCHING,
    State.LOADING: Reason.LOADING,
    State.UNLOADING: Reason.STOPPING,
    State.STOPPED: Reason.STOPPING,
    State.ERROR: Reason.RETRYING,
    State.DISABLED: Reason.STOPPING,
}
_FAULTS = frozenset({State.ERROR, State.BLOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted of a model beside what its status says. `there`: the manifest has it.
    `under_way`: an effect works on it. `moving`: a process of it loads, or ends; that comes to its
    end whatever holds back the next step. `held`: by which kind of rail nothing would be begun for
    it; None: by none. `due`: something is to be begun, and is held."""

    there: bool
    under_way: bool = False
    moving: bool = False
    held: Reason | None = None
    due: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the node's own conditions are made from. `waits`: what holds up the node as a whole.
    `suspended`: nothing is begun. `ending`: the agent is."""

    understanding: Understanding
    models: Sequence[ModelStatus]
    waits: Sequence[str] = ()
    suspended: bool = False
    ending: bool = False


_ByModel = dict[ModelName, Condition]


@dataclass(frozen=True, slots=True)
class _Told:
    """Of all models: those that are not as wanted, by their `Ready`, and of which the others are
    true."""

    amiss: _ByModel = field(default_factory=dict)
    reconciling: _ByModel = field(default_factory=dict)
    stalled: _ByModel = field(default_factory=dict)
    degraded: _ByModel = field(default_factory=dict)

    def of(self, kind: ConditionType) -> _ByModel:
        match kind:
            case ConditionType.RECONCILING:
                return self.reconciling
            case ConditionType.STALLED:
                return self.stalled
            case ConditionType.DEGRADED:
                return self.degraded
            case _:
                return self.amiss


def model_facts(model: ModelStatus, wish: Wish) -> tuple[Fact, ...]:
    """The four conditions of one model."""
    if is_as_wanted(model, wish):
        serves = model.state is State.LOADED
        reason = Reason.AS_WANTED if serves else Reason.DISABLED
        return (
            Fact(ConditionType.READY, serves, reason, model.reason),
            Fact(ConditionType.RECONCILING, False, Reason.AT_REST, "nothing is to be done"),
            Fact(ConditionType.STALLED, False, Reason.CLEAR, "nothing is in the way"),
            Fact(ConditionType.DEGRADED, False, Reason.CLEAR, "no fault is known"),
        )
    goal, why = _goal(model)
    moves, stalled = False, False
    if goal is State.BLOCKED:
        reason, stalled = Reason.BLOCKED, True
    elif wish.held is not None and not wish.under_way and not wish.moving:
        reason = wish.held
    else:
        reason, moves = _on_the_way(model, goal), True
    still = reason if stalled or not moves else Reason.CLEAR
    return (
        Fact(ConditionType.READY, False, reason, why),
        Fact(ConditionType.RECONCILING, moves, reason, why),
        Fact(ConditionType.STALLED, stalled, still, why if stalled else _goes_on(moves)),
        _degraded(model, goal, why),
    )


def is_as_wanted(model: ModelStatus, wish: Wish) -> bool:
    """The wanted instance serves, or nothing is wanted and nothing is there; and nothing comes."""
    if not wish.there or wish.under_way or wish.due:
        return False
    if model.target is not None or model.degraded is not None or model.draining:
        return False
    if model.state is State.LOADED:
        return model.detail.enabled and model.endpoint is not None
    return model.state is State.DISABLED


def node_facts(summary: Summary) -> tuple[Fact, ...]:
    """`Ready`, `Reconciling`, `Stalled` and `Degraded` of the node."""
    told = _told(summary.models)
    return (
        _ready(summary, told),
        _reconciling(summary, told),
        _stalled(summary, told),
        _node_degraded(summary, told),
    )


def _goal(model: ModelStatus) -> tuple[State, str]:
    """The state, with its reason, of the instance that is wanted."""
    if model.target is not None:
        return model.target.state, model.target.reason
    return model.state, model.reason


def _on_the_way(model: ModelStatus, goal: State) -> Reason:
    if model.target is None and model.state is State.LOADED:
        return Reason.STOPPING if model.draining or not model.detail.enabled else Reason.WAITING
    return _ON_THE_WAY.get(goal, Reason.WAITING)


def _goes_on(moves: bool) -> str:
    return "it goes on by itself" if moves else "it goes on once nothing holds it back"


def _degraded(model: ModelStatus, goal: State, why: str) -> Fact:
    serves = model.state is State.LOADED
    if model.degraded is not None:
        reason, said = Reason.REVERTED, model.degraded
    elif goal not in _FAULTS and (not _has_failed(model) or (serves and model.target is None)):
        return Fact(ConditionType.DEGRADED, False, Reason.CLEAR, "no fault is known")
    elif serves and model.target is not None:
        reason, said = Reason.OLDER_SERVES, f"what served before serves on: {why}"
    else:
        reason, said = Reason.BLOCKED if goal is State.BLOCKED else Reason.FAILED, why
    return Fact(ConditionType.DEGRADED, True, reason, said)


def _has_failed(model: ModelStatus) -> bool:
    """And is tried again: a load of a crash loop is no end of it."""
    return model.detail.failures_in_a_row > 0


def _ready(now: Summary, told: _Told) -> Fact:
    status: bool | None = False
    reason = Reason.AS_WANTED
    said: list[str] = []
    for why, sentence in _against(now, told):
        reason = why if not said else reason
        said.append(sentence)
    if not said:
        status, said = True, [_counted(now.models)]
    elif reason is Reason.NOT_READ_YET:
        status = None
    return Fact(ConditionType.READY, status, reason, "; ".join(said))


def _against(now: Summary, told: _Told) -> Iterable[tuple[Reason, str]]:
    """What speaks against `Ready`, the weightiest first."""
    know = now.understanding
    if now.ending:
        yield Reason.ENDING, "the agent ends"
    if know.source_error is not None:
        yield Reason.SOURCE_LOST, f"the manifest's source is lost: {know.source_error}"
    elif not know.location:
        yield Reason.NOT_READ_YET, "the manifest was not read yet"
    elif know.desired is None:
        yield Reason.NOTHING_GOOD_YET, "no valid manifest was read yet"
    if know.waiting is not None:
        yield Reason.STOP_LIMIT, know.waiting.reason
    elif _is_refused(know):
        yield Reason.INVALID, "the newest manifest was not taken up whole"
    worse = [name for name in told.reconciling if name in told.degraded]
    names = list(dict.fromkeys([*told.stalled, *worse, *told.reconciling, *told.amiss]))
    for name in names[:_NAMED]:
        condition = told.amiss[name]
        yield condition.reason, f"{name}: {condition.message}"
    if len(names) > _NAMED:
        yield Reason.WAITING, f"and {len(names) - _NAMED} more models"
    for wait in now.waits:
        yield Reason.WAITING, wait


def _is_refused(know: Understanding) -> bool:
    """In whole or in part; not what only waits for a confirmation."""
    read = know.location != "" and know.source_error is None
    return read and not know.whole and know.waiting is None


def _reconciling(now: Summary, told: _Told) -> Fact:
    if told.reconciling:
        first = next(iter(told.reconciling.values()))
        return Fact(ConditionType.RECONCILING, True, first.reason, _listed(told.reconciling))
    if now.waits:
        return Fact(ConditionType.RECONCILING, True, Reason.WAITING, "; ".join(now.waits))
    if now.suspended:
        said = "suspended: nothing is begun"
        return Fact(ConditionType.RECONCILING, False, Reason.SUSPENDED, said)
    if now.understanding.waiting is not None:
        said = now.understanding.waiting.reason
        return Fact(ConditionType.RECONCILING, False, Reason.STOP_LIMIT, said)
    rails = (Reason.HELD, Reason.SUSPENDED)
    held = {name: each for name, each in told.amiss.items() if each.reason in rails}
    if held:
        return Fact(ConditionType.RECONCILING, False, Reason.HELD, _listed(held))
    return Fact(ConditionType.RECONCILING, False, Reason.AT_REST, "nothing is to be done")


def _stalled(now: Summary, told: _Told) -> Fact:
    know = now.understanding
    if know.waiting is not None:
        return Fact(ConditionType.STALLED, True, Reason.STOP_LIMIT, know.waiting.reason)
    if _is_refused(know):
        said = "the newest manifest has errors: ManifestValid has them"
        return Fact(ConditionType.STALLED, True, Reason.INVALID, said)
    if told.stalled:
        return Fact(ConditionType.STALLED, True, Reason.BLOCKED, _listed(told.stalled))
    return Fact(ConditionType.STALLED, False, Reason.CLEAR, "nothing is in the way")


def _node_degraded(now: Summary, told: _Told) -> Fact:
    lost = now.understanding.source_error
    said = _listed(told.degraded)
    if lost is not None:
        said = "; ".join(filter(None, [f"the manifest's source is lost: {lost}", said]))
        return Fact(ConditionType.DEGRADED, True, Reason.SOURCE_LOST, said)
    if told.degraded:
        worst = min((each.reason for each in told.degraded.values()), key=_SEVERITY.index)
        return Fact(ConditionType.DEGRADED, True, worst, said)
    return Fact(ConditionType.DEGRADED, False, Reason.CLEAR, "no fault is known")


_SEVERITY = (Reason.BLOCKED, Reason.FAILED, Reason.REVERTED, Reason.OLDER_SERVES)


def _told(models: Iterable[ModelStatus]) -> _Told:
    told = _Told()
    for model in models:
        for condition in model.conditions:
            if condition.type is ConditionType.READY:
                is_so = condition.status != "True" and condition.reason is not Reason.DISABLED
            else:
                is_so = condition.status == "True"
            if is_so:
                told.of(condition.type)[model.name] = condition
    return told


def _listed(conditions: Mapping[ModelName, Condition]) -> str:
    said = [f"{name}: {each.message}" for name, each in sorted(conditions.items())]
    more = len(said) - _NAMED
    return "; ".join([*said[:_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _counted(models: Sequence[ModelStatus]) -> str:
    if not models:
        return "no model is selected here"
    serving = sum(model.state is State.LOADED for model in models)
    said = f"{serving} model{' serves' if serving == 1 else 's serve'} as wanted"
    disabled = len(models) - serving
    return f"{said}, {disabled} {'is' if disabled == 1 else 'are'} disabled" if disabled else said
