"""Who is left running by an agent that was told to end, and why."""

from dataclasses import replace

from reconciler.loop.intent import Understanding
from reconciler.loop.leaving import suspended_stay
from reconciler.loop.rail_conditions import rail_facts
from reconciler.plan.desired import Desired
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.phase import State
from reconciler.plan.suspension import Suspension
from reconciler.status import ModelDetail
from tests.loop.test_standing import model

A, B = ModelName("a"), ModelName("b")
BY_KIM = Suspension(by="kim", reason="night", since="2026-12-01T00:00:00Z")
WANTED = Desired(node=NodeName("n"), revision="r")


def test_nothing_is_left_where_nothing_is_suspended() -> None:
    assert suspended_stay(WANTED, ())(A) is None
    assert suspended_stay(None, ())(A) is None


def test_of_a_suspended_node_all_is_left_and_of_a_model_its_own() -> None:
    node = replace(WANTED, suspend=True, suspensions=(BY_KIM,))
    assert suspended_stay(node, ())(A) == ", as it is suspended by kim (night)"
    one = suspended_stay(replace(WANTED, suspensions=(replace(BY_KIM, model=A),)), ())
    assert (one(A), one(B)) == (", as it is suspended by kim (night)", None)


def test_a_command_counts_also_where_no_manifest_is_known() -> None:
    stays = suspended_stay(None, (replace(BY_KIM, model=A),))
    assert (stays(A), stays(B)) == (", as it is suspended by kim (night)", None)
    assert suspended_stay(None, (BY_KIM,))(B) is not None


def test_a_suspended_node_says_what_does_not_serve() -> None:
    """`/readyz` does not wait for it."""
    now = Understanding(desired=replace(WANTED, suspend=True, suspensions=(BY_KIM,)))
    enabled = ModelDetail(enabled=True)
    idle = replace(model(State.PENDING), name=A, detail=enabled)
    serves = replace(model(State.LOADED), name=B, detail=enabled)
    (fact,) = rail_facts(now, [idle, serves])
    assert fact.message.endswith("nothing is started or stopped; meanwhile these serve nothing: a")
    (fact,) = rail_facts(now, [serves])
    assert fact.message.endswith("nothing is started or stopped")
