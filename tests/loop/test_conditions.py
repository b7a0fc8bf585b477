"""Conditions: what is said, and since when."""

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.loop.conditions import Fact, source_facts, stamped
from reconciler.loop.intent import Understanding
from reconciler.manifest.problem import Problem
from reconciler.plan.ids import Place

BAD = Problem(place=Place(file="a.yaml", line=3, column=5), path="spec", message="unknown key")


def by_type(understanding: Understanding) -> dict[str, Fact]:
    return {fact.type: fact for fact in source_facts(understanding)}


def fact(status: bool = True, reason: Reason = Reason.READ) -> Fact:
    return Fact(ConditionType.SOURCE_READY, status, reason, "m")


def test_an_unreadable_source_says_that_the_last_good_version_stays() -> None:
    facts = by_type(Understanding(location="/x", source_error="cannot read /x: gone"))
    assert not facts["SourceReady"].status
    assert "last good version stays in force" in facts["SourceReady"].message


def test_problems_name_their_place_and_what_is_kept() -> None:
    facts = by_type(Understanding(location="/x", problems=(BAD,), kept=("a.yaml",)))
    assert "a.yaml:3:5: spec: unknown key" in facts["ManifestValid"].message
    assert "counted as they were: a.yaml" in facts["ManifestValid"].message


def test_since_stays_while_status_and_reason_stay() -> None:
    (first,) = stamped([fact()], (), now="t1")
    (second,) = stamped([fact()], [first], now="t2")
    assert second.since == "t1"


def test_since_moves_when_the_status_changes() -> None:
    before = Condition(
        type=ConditionType.SOURCE_READY, status="True", reason=Reason.READ, message="m", since="t1"
    )
    (after,) = stamped([fact(False, Reason.UNREADABLE)], [before], now="t2")
    assert (after.status, after.since) == ("False", "t2")
