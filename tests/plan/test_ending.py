"""While the agent ends, what lives stops and nothing starts; the states stay legal."""

import pytest

from reconciler.plan.actions import Outlook, Plan, StartBackend
from reconciler.plan.ending import ending
from reconciler.plan.ids import FilesDigest, Instance, ModelName, SpecHash
from reconciler.plan.phase import State, advance

M = ModelName("m")


def made(state: State) -> Plan:
    start = StartBackend(
        model=M,
        instance=Instance(spec_hash=SpecHash("1:a"), files_digest=FilesDigest("d")),
        gpus=(),
        reason="in the manifest and not running",
    )
    outlook = Outlook(model=M, state=state, reason="so", retry_at=5.0)
    return Plan(actions=(start,), outlook=(outlook,), next_at=5.0)


@pytest.mark.parametrize("state", sorted(set(State) - {State.STOPPED}))
@pytest.mark.parametrize("alive", [True, False])
def test_nothing_is_done_and_each_step_is_legal(state: State, alive: bool) -> None:
    plan = ending(made(state), {M} if alive else set())
    assert (plan.actions, plan.next_at, plan.outlook[0].retry_at) == ((), None, None)
    before = State.LOADING if alive else state
    assert advance(before, plan.outlook[0].state)


def test_what_lives_is_unloading_and_then_stopped() -> None:
    assert ending(made(State.LOADED), {M}).outlook[0].state is State.UNLOADING
    assert ending(made(State.LOADING), set()).outlook[0].state is State.STOPPED


def test_a_start_under_way_is_no_end_yet() -> None:
    """Its process may be there a moment later, and none comes after `stopped`."""
    shown = ending(made(State.LOADING), set(), starting={M}).outlook[0]
    assert advance(State.LOADING, shown.state) is State.LOADING
    for later in (ending(made(State.LOADING), {M}), ending(made(State.LOADING), set())):
        assert advance(shown.state, later.outlook[0].state)


def test_what_failed_goes_on_saying_why() -> None:
    shown = ending(made(State.BLOCKED), set()).outlook[0]
    assert (shown.state, shown.reason) == (State.BLOCKED, "so")


@pytest.mark.parametrize("kept", [State.LOADED, State.LOADING])
def test_what_is_left_stays_as_it_is_whatever_was_planned_for_it(kept: State) -> None:
    plan = ending(made(State.UNLOADING), {M}, {M: kept})
    shown = plan.outlook[0]
    assert (plan.actions, shown.state) == ((), kept)
    assert shown.reason == "the agent ends and leaves it running"
    assert advance(kept, shown.state)


def test_of_what_still_stops_nothing_is_left() -> None:
    assert ending(made(State.LOADED), {M}, {}).outlook[0].state is State.UNLOADING


@pytest.mark.parametrize("before", [State.ERROR, State.BLOCKED])
def test_the_end_may_come_when_a_failure_is_to_be_tried_again(before: State) -> None:
    plan = ending(made(State.CACHING), set())
    assert advance(before, plan.outlook[0].state) is State.STOPPED
