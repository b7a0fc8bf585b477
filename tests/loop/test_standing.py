"""Conditions tell the truth: each is reckoned anew here, from what the status shows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.loop.conditions import stamped
from reconciler.loop.intent import Understanding
from reconciler.loop.standing import Summary, Wish, model_facts, node_facts
from reconciler.plan.desired import Desired, ModelType, WaitingRevision
from reconciler.plan.ids import ModelName, NodeName, Nonce, SpecHash
from reconciler.plan.phase import State
from reconciler.plan.stop_limit import StopLimit
from reconciler.status import DrainingStatus, Endpoint, ModelDetail, ModelStatus, TargetStatus

READY, RECONCILING = ConditionType.READY, ConditionType.RECONCILING
STALLED, DEGRADED = ConditionType.STALLED, ConditionType.DEGRADED
ENDPOINT = Endpoint(nonce=Nonce("n"), host="127.0.0.1", port=1)
DESIRED = Desired(node=NodeName("n"), revision="r")
TAKEN = Understanding(desired=DESIRED, location="/x", whole=True)
WAITING = WaitingRevision(revision="r2", stops=(), running=4, limit=StopLimit(count=0))
OLD = DrainingStatus(nonce=Nonce("old"), pid=1, spec_hash=SpecHash("1:o"), reason="drains")


def model(state: State = State.LOADED, **fields: object) -> ModelStatus:
    whole: dict[str, object] = {
        "name": ModelName("m"),
        "type": ModelType.LLM,
        "reason": "so",
        "state": state,
    }
    if state is State.LOADED:
        whole["endpoint"] = ENDPOINT
    return ModelStatus(**(whole | fields))  # type: ignore[arg-type]


def target(state: State) -> TargetStatus:
    return TargetStatus(spec_hash=SpecHash("1:t"), state=state, reason="comes")


def told(status: ModelStatus, wish: Wish) -> dict[ConditionType, Condition]:
    return {each.type: each for each in stamped(model_facts(status, wish), (), now="t")}


def of_node(summary: Summary) -> dict[ConditionType, Condition]:
    return {each.type: each for each in stamped(node_facts(summary), (), now="t")}


def reasons(status: ModelStatus, wish: Wish) -> tuple[str, ...]:
    """What is true; and of `Ready` why."""
    said = told(status, wish)
    return (said[READY].reason, *(kind for kind, each in said.items() if each.status == "True"))


WANTED = Wish(there=True)


def test_what_serves_as_wanted_is_ready_and_nothing_else() -> None:
    assert reasons(model(), WANTED) == (Reason.AS_WANTED, READY)


def test_what_is_disabled_serves_nothing_and_is_no_trouble() -> None:
    assert reasons(model(State.DISABLED), WANTED) == (Reason.DISABLED,)


def test_a_change_under_way_is_told_by_what_it_does() -> None:
    coming = model(target=target(State.CACHING))
    assert reasons(coming, WANTED) == (Reason.FETCHING, RECONCILING)
    assert reasons(model(draining=(OLD,)), WANTED) == (Reason.STOPPING, RECONCILING)


def test_a_change_that_cannot_come_costs_what_serves_its_ready() -> None:
    blocked = model(target=target(State.BLOCKED))
    assert reasons(blocked, WANTED) == (Reason.BLOCKED, STALLED, DEGRADED)
    assert told(blocked, WANTED)[DEGRADED].reason is Reason.OLDER_SERVES


def test_a_crash_loop_is_degraded_while_it_loads_again_too() -> None:
    loads = model(State.LOADING, detail=ModelDetail(failures_in_a_row=2))
    assert reasons(loads, WANTED) == (Reason.LOADING, RECONCILING, DEGRADED)
    assert told(loads, WANTED)[DEGRADED].reason is Reason.FAILED


def test_what_serves_again_is_not_degraded_by_what_was() -> None:
    again = model(detail=ModelDetail(failures_in_a_row=2), draining=(OLD,))
    assert reasons(again, WANTED) == (Reason.STOPPING, RECONCILING)


def test_a_held_change_is_neither_on_its_way_nor_stalled() -> None:
    held = replace(WANTED, held=Reason.SUSPENDED)
    assert reasons(model(), held) == (Reason.AS_WANTED, READY)
    assert reasons(model(State.PENDING), held) == (Reason.SUSPENDED,)
    assert reasons(model(), replace(held, due=True)) == (Reason.SUSPENDED,)
    loads = replace(held, moving=True)
    assert reasons(model(State.LOADING), loads) == (Reason.LOADING, RECONCILING)
    stops_then = replace(WANTED, held=Reason.HELD, moving=True, due=True)
    assert reasons(model(State.LOADING), stops_then) == (Reason.LOADING, RECONCILING)
    assert reasons(model(State.CACHING), held) == (Reason.SUSPENDED,)


def test_what_the_manifest_has_no_more_is_not_as_wanted_while_it_runs() -> None:
    assert reasons(model(), Wish(there=False))[0] is not Reason.AS_WANTED


def test_what_is_disabled_and_serves_still_is_not_as_wanted() -> None:
    still = model(detail=ModelDetail(enabled=False))
    assert reasons(still, WANTED) == (Reason.STOPPING, RECONCILING)


def test_a_lost_source_costs_the_node_its_ready_whatever_serves() -> None:
    lost = replace(TAKEN, source_error="cannot read /x")
    said = of_node(Summary(understanding=lost, models=()))
    assert (said[READY].status, said[READY].reason) == ("False", Reason.SOURCE_LOST)
    assert (said[DEGRADED].status, said[DEGRADED].reason) == ("True", Reason.SOURCE_LOST)
    assert said[STALLED].status == "False"


def test_before_the_first_read_nobody_knows() -> None:
    said = of_node(Summary(understanding=Understanding(), models=()))
    assert (said[READY].status, said[READY].reason) == ("Unknown", Reason.NOT_READ_YET)


def test_a_revision_that_waits_for_a_confirmation_is_held_and_not_refused() -> None:
    waits = replace(TAKEN, whole=False, desired=replace(DESIRED, waiting=WAITING))
    said = of_node(Summary(understanding=waits, models=()))
    assert (said[READY].status, said[READY].reason) == ("False", Reason.STOP_LIMIT)
    assert (said[RECONCILING].status, said[RECONCILING].reason) == ("False", Reason.STOP_LIMIT)
    assert (said[STALLED].status, said[STALLED].reason) == ("True", Reason.STOP_LIMIT)
    assert "waits for confirmation" in said[READY].message


def test_a_refused_manifest_stalls_the_node() -> None:
    refused = replace(TAKEN, whole=False)
    said = of_node(Summary(understanding=refused, models=()))
    assert (said[READY].status, said[READY].reason) == ("False", Reason.INVALID)
    assert said[STALLED].status == "True"


models = st.builds(
    model,
    state=st.sampled_from(State),
    target=st.none() | st.builds(target, st.sampled_from(State)),
    endpoint=st.sampled_from([None, ENDPOINT]),
    degraded=st.sampled_from([None, "runs its last good spec"]),
    draining=st.sampled_from([(), (OLD,)]),
    detail=st.builds(ModelDetail, failures_in_a_row=st.integers(0, 3), enabled=st.booleans()),
)
wishes = st.builds(
    Wish,
    there=st.booleans(),
    under_way=st.booleans(),
    moving=st.booleans(),
    held=st.sampled_from([None, Reason.SUSPENDED, Reason.HELD]),
    due=st.booleans(),
)


def settled(status: ModelStatus, wish: Wish) -> bool:
    """Nothing is left to do for it, and it is what the manifest says."""
    busy = wish.under_way or wish.due or bool(status.draining)
    other = status.target is not None or status.degraded is not None or not wish.there
    rests = status.state is State.LOADED and status.endpoint is not None and status.detail.enabled
    return (rests or status.state is State.DISABLED) and not busy and not other


@given(models, wishes)
def test_each_condition_of_a_model_is_true_only_where_it_is(
    status: ModelStatus, wish: Wish
) -> None:
    said = told(status, wish)
    true = {kind for kind, each in said.items() if each.status == "True"}
    assert set(said) == {READY, RECONCILING, STALLED, DEGRADED}
    assert (READY in true) == (settled(status, wish) and status.state is State.LOADED)
    goal = status.target.state if status.target is not None else status.state
    assert (STALLED in true) == (not settled(status, wish) and goal is State.BLOCKED)
    if READY in true:
        assert true == {READY}
    assert not {RECONCILING, STALLED} <= true
    if settled(status, wish):
        assert not true - {READY}
    elif not {RECONCILING, STALLED} & true:  # it is held, and says by what
        assert wish.held is not None
        assert said[READY].reason is wish.held
    fault = goal in (State.ERROR, State.BLOCKED) or status.degraded is not None
    if fault and not settled(status, wish):
        assert DEGRADED in true
    if wish.under_way and goal is not State.BLOCKED:
        assert RECONCILING in true


@given(
    st.lists(st.tuples(models, wishes), max_size=4),
    st.sampled_from(
        [
            TAKEN,
            replace(TAKEN, whole=False),
            replace(TAKEN, source_error="gone"),
            replace(TAKEN, whole=False, desired=replace(DESIRED, waiting=WAITING)),
            replace(TAKEN, location="", desired=None, whole=False),
            replace(TAKEN, desired=None, whole=False),
        ]
    ),
    st.sampled_from([(), ("waits",)]),
    st.booleans(),
    st.booleans(),
)
def test_a_node_is_ready_only_where_all_is_as_wanted(
    each: list[tuple[ModelStatus, Wish]],
    know: Understanding,
    waits: tuple[str, ...],
    suspended: bool,
    ending: bool,
) -> None:
    listed = [
        replace(
            status,
            name=ModelName(f"m{number}"),
            conditions=stamped(model_facts(status, wish), (), now="t"),
        )
        for number, (status, wish) in enumerate(each)
    ]
    said = of_node(
        Summary(understanding=know, models=listed, waits=waits, suspended=suspended, ending=ending)
    )
    fine = all(settled(status, wish) for status, wish in each)
    sound = know.desired is not None and know.whole and know.source_error is None
    assert (said[READY].status == "True") == (fine and sound and not waits and not ending)
    true = {kind for kind, condition in said.items() if condition.status == "True"}
    for kind in (RECONCILING, STALLED, DEGRADED):
        of_models = any(
            condition.type is kind and condition.status == "True"
            for status in listed
            for condition in status.conditions
        )
        assert kind in true or not of_models
    assert all(condition.message for condition in said.values())
