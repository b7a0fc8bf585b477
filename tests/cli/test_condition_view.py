"""What of conditions people see: in few words what is not fine, all of it when asked."""

import io
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console
from rich.text import Text

from reconciler.cli.client import Json
from reconciler.cli.condition_view import every, is_bad, is_told_elsewhere, short
from reconciler.cli.status_view import render

SINCE = (datetime.now(UTC) - timedelta(hours=100, minutes=1)).isoformat(timespec="milliseconds")


def condition(kind: str, status: str, reason: str, message: str = "so") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "since": SINCE}


FINE = [
    condition("Ready", "True", "AsWanted"),
    condition("Reconciling", "False", "AtRest"),
    condition("Stalled", "False", "Clear"),
    condition("Degraded", "False", "Clear"),
    condition("SourceReady", "True", "Read"),
]
BLOCKED = [
    condition("Ready", "False", "Blocked", "a: no memory"),
    condition("Reconciling", "False", "AtRest"),
    condition("Stalled", "True", "Blocked", "a: no memory"),
    condition("Degraded", "True", "Blocked", "a: no memory"),
    condition("CacheInBudget", "False", "TooLarge", "too large"),
]


def lines(texts: Iterable[Text]) -> list[str]:
    return [text.plain.strip() for text in texts]


def test_what_is_fine_is_not_told() -> None:
    assert lines(short("n", FINE)) == []


def test_the_four_that_sum_up_are_one_line_without_what_the_models_tell() -> None:
    summed, other = lines(short("n", BLOCKED))
    assert summed == (
        "n: Ready False (Blocked), Stalled True (Blocked), Degraded True (Blocked) "
        f"since {SINCE} (100 h)"
    )
    assert other == f"n: CacheInBudget is False (TooLarge) since {SINCE} (100 h): too large"


def test_a_fault_of_the_agent_is_told_with_its_cause() -> None:
    fault = condition("Ready", "Unknown", "TickFailed", "the agent fails")
    (line,) = lines(short("n", [fault]))
    assert line.endswith("(100 h): the agent fails")
    assert not is_told_elsewhere(fault)


def test_what_was_said_is_not_said_again() -> None:
    heading, first, *others = lines(every("n", BLOCKED))
    assert (heading, first[-12:]) == ("conditions of n:", "a: no memory")
    assert [line.endswith("no memory") for line in others] == [False] * 4


@pytest.mark.parametrize(
    ("kind", "status", "reason", "bad"),
    [
        ("Suspended", "True", "Manifest", True),
        ("Suspended", "False", "Manifest", False),
        ("ManifestValid", "False", "Invalid", True),
        ("Ready", "Unknown", "LoopSilent", True),
        ("SourceReady", "Unknown", "NotReadYet", False),
        ("OfALaterRelease", "False", "New", True),
    ],
)
def test_whether_somebody_may_want_to_look(kind: str, status: str, reason: str, bad: bool) -> None:
    assert is_bad(condition(kind, status, reason)) is bad


@pytest.mark.parametrize(("age", "old"), [(20.0, False), (40.0, True), (300.0, True)])
def test_an_old_view_says_so(age: float, old: bool) -> None:
    server = {
        "node": "n",
        "models": [],
        "as_of": "2026-03-01T12:00:00+00:00",
        "loop": {"silent": age > 60.0, "age_seconds": age},
    }
    out = Console(file=io.StringIO(), width=200, color_system=None)
    with out.capture() as captured:
        out.print(render({"servers": [server]}, width=200))
    assert ("n: all of this is as of 2026-03-01T12:00:00+00:00" in captured.get()) is old


@pytest.mark.parametrize(
    ("revision", "said"),
    [
        ({"applied": "a" * 40, "attempted": "a" * 40}, f"manifest {'a' * 12}, takes"),
        (
            {"applied": "a" * 40, "attempted": "b" * 40},
            f"manifest {'a' * 12} (not taken: {'b' * 12}), takes",
        ),
        ({"applied": None, "attempted": "b" * 40}, f"no manifest yet (not taken: {'b' * 12}), "),
        ({"applied": "a" * 40}, f"manifest {'a' * 12}, takes"),
    ],
)
def test_the_newest_revision_is_named_where_it_was_not_taken(
    revision: dict[str, str | None], said: str
) -> None:
    server = {"node": "n", "models": [], "ready": True, "revision": revision}
    out = Console(file=io.StringIO(), width=200, color_system=None)
    with out.capture() as captured:
        out.print(render({"servers": [server]}, width=200))
    assert said in captured.get().splitlines()[0]
