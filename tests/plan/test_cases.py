"""Every case of `cases/*.yaml`: desired + observed + now → actions and outlook, with reasons."""

import pytest

from reconciler.plan.planner import plan
from tests.plan import build
from tests.plan.build import Data

CASES = build.load_cases()


def test_names_of_cases_are_unique() -> None:
    names = [case["case"] for case in CASES]

    assert len(names) >= 35
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['file']}: {case['case']}")
def test_plan_of(case: Data) -> None:
    made = plan(
        build.desired(case["desired"], suspend=case.get("suspend", False)),
        build.observed(
            case.get("there", {}),
            leftovers=case.get("leftovers", []),
            loads=case.get("loads", 2),
            processes_read=case.get("processes_read", True),
            engines_known=case.get("engines_known", True),
            engines_failure=case.get("engines_failure"),
            memory=case.get("room"),
        ),
        case.get("now", 100.0),
    )

    assert {
        "actions": [build.action_line(action) for action in made.actions],
        "outlook": {each.model: build.outlook_lines(each) for each in made.outlook},
        "notes": list(made.notes),
        "next_at": made.next_at and round(made.next_at, 1),
    } == {
        "actions": case.get("actions", []),
        "outlook": case.get("outlook", {}),
        "notes": case.get("notes", []),
        "next_at": case.get("next_at"),
    }
