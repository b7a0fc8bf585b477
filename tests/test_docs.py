"""What readers are told of names is what there is."""

import re
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from reconciler import metrics
from reconciler.condition import ConditionType, Reason
from reconciler.events import EventKind
from reconciler.metrics import Metrics, Shown
from reconciler.plan.actions import Action
from reconciler.source.kubernetes_address import parse_config_map
from reconciler.source.kubernetes_role import role
from tests.links import broken

_ROOT = Path(__file__).parents[1]
_DOCS = _ROOT / "docs"
_PAGES = sorted([*_ROOT.glob("*.md"), *_DOCS.rglob("*.md"), *(_ROOT / "charts").rglob("*.md")])


def _rows(page: str) -> str:
    text = (_DOCS / page).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if line.startswith("| `"))


def _counted(registry: CollectorRegistry) -> set[str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }


def test_every_metric_is_documented_and_no_other() -> None:
    shown = {value.name for value in vars(metrics).values() if isinstance(value, Shown)}
    every = Metrics(node="n")
    every.show_cache(lambda: 0, lambda: 1)
    every.show_imports({"pending": lambda: 0})
    counted = {name for name in _counted(every.registry) if name.startswith("xgen_")}
    documented = set(re.findall(r"^\| `(xgen_\w+)`", _rows("metrics.md"), re.MULTILINE))
    assert documented == shown | counted


def test_every_kind_of_event_is_documented_and_no_other() -> None:
    rows = re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \|", _rows("management.md"), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"\w+", row)}
    actions = {kind.__name__ for kind in get_args(Action)}
    assert actions <= documented
    assert documented - actions == set(EventKind)


def test_every_condition_and_reason_is_documented_and_no_other() -> None:
    page = (_DOCS / "conditions.md").read_text(encoding="utf-8")
    types, _, reasons = page.partition("## Reasons")
    named = re.findall(r"^\| `(\w+)`", types, re.MULTILINE)
    assert sorted(named) == sorted(ConditionType)
    named = re.findall(r"^\| `(\w+)`", reasons, re.MULTILINE)
    assert sorted(named) == sorted(Reason)


def test_every_reason_says_what_it_means_and_what_to_do() -> None:
    page = (_DOCS / "conditions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `\w+` \|.*$", page.partition("## Reasons")[2], re.MULTILINE)
    for row in rows:
        _, _, means, do, _ = row.split("|")
        assert means.strip(), row
        assert do.strip(), row


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One: head\n[a](#one-head) [b](#none) [`c`](page.md#one-head) [d](gone.md)",
        encoding="utf-8",
    )
    assert broken(page) == ["#none", "gone.md"]


def test_the_role_is_the_one_that_doctor_prints() -> None:
    page = (_DOCS / "sources.md").read_text(encoding="utf-8")
    assert f"```yaml\n{role(parse_config_map('configmap://models/prod'))}```" in page
