"""While the agent ends, what lives stops and nothing starts; the states stay legal."""

from typing import Any

import pytest

from reconciler.plan.actions import Draining, Outlook, Plan, StartBackend, Target
from reconciler.plan.ending import Left, ending
from reconciler.plan.ids import FilesDigest, Instance, ModelName, Nonce, SpecHash
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


def test_what_is_left_alone_says_why() -> None:
    one = Left(state=State.LOADED, processes=frozenset(), why=", as it is suspended by kim")
    shown = ending(made(State.LOADED), {M}, {M: one}).outlook[0]
    assert shown.reason == "the agent ends and leaves it running, as it is suspended by kim"


@pytest.mark.parametrize("kept", [State.LOADED, State.LOADING])
def test_what_is_left_stays_as_it_is_whatever_was_planned_for_it(kept: State) -> None:
    plan = ending(made(State.UNLOADING), {M}, {M: left(kept)})
    shown = plan.outlook[0]
    assert (plan.actions, shown.state) == ((), kept)
    assert shown.reason == "the agent ends and leaves it running"
    assert advance(kept, shown.state)


def test_of_a_change_that_is_left_both_processes_are_told() -> None:
    """The one that loads was shown nowhere, and an operator took it for a stray."""
    coming = Target(spec_hash=SpecHash("1:b"), state=State.LOADING, reason="loads (pid 8)")
    shown = surging(coming=Nonce("new"), target=coming)

    (told,) = ending(shown, {M}, {M: left(State.LOADED, "old", "new")}).outlook
    (alone,) = ending(shown, {M}, {M: left(State.LOADED, "old")}).outlook

    assert told.target is not None
    assert (told.target.spec_hash, told.target.state) == ("1:b", State.LOADING)
    assert "leaves it loading" in told.target.reason
    assert told.coming == "new"
    assert alone.target is None


def test_of_a_change_that_is_done_the_old_one_is_told_as_left_or_as_ending() -> None:
    old = Draining(nonce=Nonce("old"), pid=7, spec_hash=SpecHash("1:a"), reason="spec changed")
    shown = surging(draining=(old,))

    (kept,) = ending(shown, {M}, {M: left(State.LOADED, "old", "new")}).outlook
    (going,) = ending(shown, {M}, {M: left(State.LOADED, "new")}).outlook

    assert "leaves it to the next one" in kept.draining[0].reason
    assert going.draining == (old,)


def surging(**more: Any) -> Plan:
    return Plan(outlook=(Outlook(model=M, state=State.LOADED, reason="serves", **more),))


def left(state: State, *processes: str) -> Left:
    return Left(state=state, processes=frozenset(map(Nonce, processes)))


def test_of_what_still_stops_nothing_is_left() -> None:
    assert ending(made(State.LOADED), {M}, {}).outlook[0].state is State.UNLOADING


@pytest.mark.parametrize("before", [State.ERROR, State.BLOCKED])
def test_the_end_may_come_when_a_failure_is_to_be_tried_again(before: State) -> None:
    plan = ending(made(State.CACHING), set())
    assert advance(before, plan.outlook[0].state) is State.STOPPED
