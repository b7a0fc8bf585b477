"""The states of a model on a node, and the one table of how they may follow each other.

pending ─▶ caching ─▶ loading ─▶ loaded ─▶ unloading ─▶ stopped
   error: failed, will be tried again      blocked: failed, waits for a change
   disabled: `enabled: false`

States are levels that a tick of the loop samples, not events: a step may skip what came and went
between two ticks. What cannot be skipped is `loading`: the plan that starts a process already says
so. Hence the one rule of the table: a model is loaded or unloading only after it was loading.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from reconciler.errors import Bug


class State(StrEnum):
    PENDING = "pending"
    CACHING = "caching"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"
    STOPPED = "stopped"
    ERROR = "error"
    BLOCKED = "blocked"
    DISABLED = "disabled"


_LIVE = frozenset({State.LOADED, State.UNLOADING})
_WITHOUT_PROCESS = frozenset(State) - _LIVE


def _followers(state: State) -> frozenset[State]:
    if state is State.LOADING or state in _LIVE:
        return frozenset(State) - {state}
    return _WITHOUT_PROCESS - {state}


TRANSITIONS: Mapping[State, frozenset[State]] = MappingProxyType(
    {state: _followers(state) for state in State}
)
"""What may be seen after what. To stay in a state is no step."""

FIRST: frozenset[State] = frozenset(State)
"""What a model may be when it appears: with processes, where they are adopted; stopped, where the
agent was told to end before it had shown anything."""


def advance(old: State | None, new: State) -> State:
    """Return `new`; raise `Bug` when it cannot follow `old`. None: the model was not listed."""
    legal = FIRST if old is None else TRANSITIONS[old] | {old}
    if new not in legal:
        before = "not listed" if old is None else old.value
        raise Bug(f"cannot go from state {before} to {new.value}: no such step in the table")
    return new
