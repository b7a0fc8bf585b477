"""The one table of states."""

import pytest

from reconciler.errors import Bug
from reconciler.plan.phase import FIRST, TRANSITIONS, State, advance


def test_table_knows_every_state() -> None:
    assert set(TRANSITIONS) == set(State)


def test_staying_in_a_state_is_no_step() -> None:
    for state in State:
        assert advance(state, state) is state
        assert state not in TRANSITIONS[state]


def test_whole_life_of_a_model_is_legal() -> None:
    seen: State | None = None
    for state in ("pending", "caching", "loading", "loaded", "unloading", "stopped"):
        seen = advance(seen, State(state))

    assert seen is State.STOPPED


@pytest.mark.parametrize("live", [State.LOADED, State.UNLOADING])
def test_process_is_never_seen_without_having_been_seen_loading(live: State) -> None:
    before = {state for state, after in TRANSITIONS.items() if live in after}

    assert before == {State.LOADING, State.LOADED, State.UNLOADING} - {live}


def test_illegal_step_is_a_bug_that_names_both_states() -> None:
    with pytest.raises(Bug, match="cannot go from state blocked to loaded"):
        advance(State.BLOCKED, State.LOADED)


@pytest.mark.parametrize("state", State)
def test_model_may_appear_in_any_state(state: State) -> None:
    """Loaded of an adopted one; stopped of an agent that ends before its first look is shown."""
    assert state in FIRST
    assert advance(None, state) is state
