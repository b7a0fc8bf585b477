"""An agent's own plan, in the terms of a comparison."""

import pytest

from reconciler.cli.told import is_suspended, planned_by
from reconciler.plan.changes import Verb

COMING = {"spec_hash": "1:02", "state": "pending", "reason": "held back: spec changed"}
REFUSED = {"spec_hash": "1:02", "state": "blocked", "reason": "bad flag"}


@pytest.mark.parametrize(
    ("state", "target", "free", "suspended"),
    [
        ("loaded", None, Verb.UNCHANGED, Verb.UNCHANGED),
        ("loaded", COMING, Verb.RESTART, Verb.UNCHANGED),
        ("loaded", REFUSED, Verb.REFUSED, Verb.REFUSED),
        ("pending", None, Verb.START, Verb.UNCHANGED),
        ("error", None, Verb.START, Verb.UNCHANGED),
        ("caching", None, Verb.START, Verb.UNCHANGED),
        ("loading", None, Verb.START, Verb.START),
        ("unloading", COMING, Verb.RESTART, Verb.STOP),
    ],
)
def test_what_is_held_back_is_no_change(
    state: str, target: dict[str, str] | None, free: Verb, suspended: Verb
) -> None:
    entry = {"name": "m", "state": state, "reason": "so", "target": target}
    assert planned_by(entry, suspended=False).verb is free
    assert planned_by(entry, suspended=True).verb is suspended


@pytest.mark.parametrize("suspended", [False, True])
def test_what_an_earlier_agent_started_and_is_asked_again_is_no_start(suspended: bool) -> None:
    entry = {"name": "m", "state": "loading", "reason": "is asked", "asked_again": True}
    change = planned_by(entry, suspended=suspended)
    assert (change.verb, change.reason) == (Verb.UNCHANGED, "is asked")
    coming = planned_by({**entry, "target": COMING}, suspended=False)
    assert coming.verb is Verb.RESTART


def test_a_node_tells_by_a_condition_whether_it_is_suspended() -> None:
    assert is_suspended({"conditions": [{"type": "Suspended", "status": "True"}]})
    assert not is_suspended({"conditions": [{"type": "Suspended", "status": "False"}]})
    assert not is_suspended({"conditions": [{"type": "Draining", "status": "True"}]})
    assert not is_suspended({})
