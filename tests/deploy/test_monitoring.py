"""What the chart gives to Prometheus' operator and to Grafana's sidecar."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import HELM, MISSING, HelmFailed, render
from tests.deploy.promtool import RULES, alerts, promtool, unit_tests

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

MONITOR = "monitoring.serviceMonitor.enabled=true"
RULED = "monitoring.rules.enabled=true"
SHOWN = "monitoring.dashboard.enabled=true"


def _of_kind(objects: list[Any], kind: str) -> list[Any]:
    return [each for each in objects if each["kind"] == kind]


def _only(objects: list[Any], kind: str) -> Any:
    (found,) = _of_kind(objects, kind)
    return found


def test_nothing_of_it_is_there_unless_it_is_asked_for(tmp_path: Path) -> None:
    every = {each["kind"] for each in render(home=tmp_path)}
    assert not every & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert not any("dashboard" in each["metadata"]["name"] for each in render(home=tmp_path))


def test_the_monitor_selects_the_headless_service_alone(tmp_path: Path) -> None:
    """It has the agents that are not ready, too; the other one would have each agent twice."""
    objects = render("--set", MONITOR, home=tmp_path)
    wanted = _only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    chosen = [
        each
        for each in _of_kind(objects, "Service")
        if wanted <= each["metadata"]["labels"].items()
    ]
    (service,) = chosen
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    (port,) = service["spec"]["ports"]
    endpoints = _only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert {each["port"] for each in endpoints} == {port["name"]}


def test_agents_and_engines_are_two_jobs_with_the_label_node(tmp_path: Path) -> None:
    spec = _only(render("--set", MONITOR, home=tmp_path), "ServiceMonitor")["spec"]
    jobs = {}
    for each in spec["endpoints"]:
        labels = {rule["targetLabel"]: rule for rule in each["relabelings"]}
        assert labels["node"]["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
        assert each["honorLabels"] is True
        jobs[each["path"]] = labels["job"]["replacement"]
    assert len(set(jobs.values())) == len(jobs) == 2
    (lone,) = _only(
        render("--set", f"{MONITOR},monitoring.serviceMonitor.backends=false", home=tmp_path),
        "ServiceMonitor",
    )["spec"]["endpoints"]
    assert lone["path"] == "/metrics"


def test_the_rendered_alerts_are_for_the_jobs_that_the_monitor_makes(tmp_path: Path) -> None:
    """All unit tests again, with the very labels that the targets of the release have."""
    objects = render("--set", f"{MONITOR},{RULED}", home=tmp_path)
    monitor = _only(objects, "ServiceMonitor")
    job = monitor["spec"]["endpoints"][0]["relabelings"][0]["replacement"]
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(_only(objects, "PrometheusRule")["spec"]), encoding="utf-8")
    told = unit_tests(rules, target={"job": job, "namespace": "models"})
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump(told), encoding="utf-8")
    promtool("check", "rules", str(rules))
    promtool("test", "rules", str(tests))


def test_an_operator_leaves_alerts_out_changes_them_and_links_to_docs(tmp_path: Path) -> None:
    values = {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "runbooks": "https://git.example.com/xgen-model/src/main/",
        "disabled": ["XgenRequestsWait"],
        "overrides": {"XgenModelNotLoaded": {"for": "2h", "labels": {"severity": "info"}}},
    }
    objects = render("--set-json", f"monitoring.rules={json.dumps(values)}", home=tmp_path)
    rule = _only(objects, "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    found = alerts(rule["spec"])
    plain = alerts(yaml.safe_load(RULES.read_text(encoding="utf-8")))
    assert plain.keys() - found.keys() == {"XgenRequestsWait"}
    changed = found["XgenModelNotLoaded"]
    assert (changed["for"], changed["labels"]) == ("2h", {"severity": "info"})
    assert changed["annotations"]["runbook_url"] == (
        "https://git.example.com/xgen-model/src/main/docs/troubleshooting.md#error-it-is-tried-again"
    )
    assert "XgenModelNotLoaded" in plain


@pytest.mark.parametrize(
    "wrong",
    [
        'monitoring.rules={"enabled": true, "disabled": ["XgenAgentGone"]}',
        'monitoring.rules={"enabled": true, "overrides": {"XgenAgentGone": {"for": "1m"}}}',
        'monitoring.rules={"enabled": true, "overrides": {"XgenAgentDown": {"fro": "1m"}}}',
        'monitoring.rules={"runbook": "https://x"}',
        'monitoring.serviceMonitor={"interval": "30"}',
        'monitoring.dashboards={"enabled": true}',
    ],
)
def test_a_typing_error_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(HelmFailed, match=r"XgenAgentGone|fro|runbook|interval|dashboards"):
        render("--set-json", wrong, home=tmp_path)


def test_the_dashboard_comes_as_the_sidecar_looks_for_it(tmp_path: Path) -> None:
    more = "monitoring.dashboard.namespace=grafana"
    objects = render("--set", f"{SHOWN},{more}", home=tmp_path)
    (found,) = [
        each
        for each in _of_kind(objects, "ConfigMap")
        if each["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]
    assert found["metadata"]["namespace"] == "grafana"
    ((name, text),) = found["data"].items()
    assert name.endswith(".json")
    assert json.loads(text) == json.loads(
        (RULES.parent / "dashboard.json").read_text(encoding="utf-8")
    )
