"""What is told as held back, and what is not: it goes on, or was begun."""

from dataclasses import replace

import pytest

from reconciler.loop.unheld import begun_told
from reconciler.plan.actions import Plan, StopBackend
from reconciler.plan.changes import Change, NodeChanges, Verb
from reconciler.plan.desired import WaitingRevision
from reconciler.plan.ids import ModelName, NodeName, Nonce
from reconciler.plan.stop_limit import StopLimit

M = ModelName("m")
WAITING = WaitingRevision(revision="r2", stops=(M,), running=1, limit=StopLimit(count=0))
STOP = StopBackend(model=M, nonce=Nonce("n"), pid=7, drain=True, reason="so", cause=WAITING.reason)


@pytest.mark.parametrize(
    ("verb", "cause", "held"),
    [
        (Verb.START, WAITING.reason, None),
        (Verb.UNCHANGED, WAITING.reason, "it waits"),
        (Verb.START, "suspended", "it waits"),
    ],
)
def test_what_loads_again_is_not_held_by_a_revision_that_would_stop_it(
    verb: Verb, cause: str, held: str | None
) -> None:
    change = Change(model=M, verb=verb, reason="", held="it waits")
    made = NodeChanges(node=NodeName("n"), changes=(change,))
    plan = Plan(held=(replace(STOP, cause=cause),))
    assert begun_told(made, plan, WAITING).changes[0].held == held
    assert begun_told(made, plan, None) == made
