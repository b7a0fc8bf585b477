"""The alerts: each fires when it should and not else, on what an agent really says."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import ROOT
from tests.deploy.promtool import RULES, alerts, cases, promtool, unit_tests
from tests.deploy.queries import metrics_in, selectors_in
from tests.links import anchors

ALERTS: dict[str, Any] = alerts(yaml.safe_load(RULES.read_text(encoding="utf-8")))


def test_promtool_takes_the_rules() -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", str(RULES))


def test_each_alert_fires_when_it_should_and_not_else(tmp_path: Path) -> None:
    told = unit_tests(RULES, target={"job": "xgen-model", "namespace": "models"})
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(told), encoding="utf-8")
    promtool("test", "rules", str(path))


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    told = cases()
    assert told.keys() == ALERTS.keys()
    for name, each in told.items():
        assert each["quiet"], name
        for case in (each["fires"], *each["quiet"]):
            # YAML would read 0x9 as a number.
            assert all(isinstance(values, str) for values in case["series"].values()), name


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_grave_it_is_what_it_means_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    notes = rule["annotations"]
    assert notes.keys() == {"summary", "description", "runbook"}
    page, _, anchor = notes["runbook"].partition("#")
    assert (ROOT / page).is_file()
    assert not anchor or anchor in anchors(ROOT / page)


@pytest.mark.parametrize("name", ALERTS)
def test_every_selector_is_of_the_agents_job_which_the_chart_replaces(name: str) -> None:
    query = ALERTS[name]["expr"]
    found = selectors_in(query)
    assert len(found) >= len(metrics_in(query)) > 0
    assert all(each.startswith('job="xgen-model"') for each in found)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_names_labels_that_its_query_leaves(name: str) -> None:
    rule = ALERTS[name]
    kept = re.search(r"by \(([^)]*)\)", rule["expr"])
    named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    if kept is not None:
        assert named <= {label.strip() for label in kept.group(1).split(",")}
    else:
        assert named <= {"node", "instance", "job", "namespace"}


def test_the_page_on_metrics_has_a_row_for_each_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Xgen\w+)` \|", page, re.MULTILINE) == list(ALERTS)
