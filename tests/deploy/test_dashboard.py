"""The Grafana dashboard, and that all names in it and in the alerts are those of a real agent."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.helm import ROOT
from tests.deploy.promtool import RULES, alerts, promtool
from tests.deploy.queries import metrics_in, selectors_in
from tests.e2e.agent import Agent, llama_server_stand_in
from tests.e2e.manifests import manifest, model

DASHBOARD: Any = json.loads(
    (ROOT / "charts" / "xgen-model" / "files" / "dashboard.json").read_text(encoding="utf-8")
)
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SITUATIONAL = {
    "xgen_fetch_bytes",
    "xgen_gpu_memory_bytes",
    "xgen_gpu_utilization_ratio",
    "xgen_peer_up",
    "xgen_tokens_total",
}
"""Without samples where there is nothing of the kind; the agent declares them all the same."""


def _queries() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`/metrics` of a real agent with a model that serves, and that was asked once."""
    root = tmp_path_factory.mktemp("agent")
    engine = ("--llama-server", str(llama_server_stand_in(root)))
    agent = Agent(root=root, args=[*engine, "--cache-budget", "1GiB"])
    agent.data.mkdir()
    agent.model_file()
    agent.write(manifest(model("chat")))
    agent.start()
    try:
        agent.wait_up()
        agent.wait_state("chat", "loaded")
        agent.post("/v1/chat/completions", {"model": "chat", "messages": []}).raise_for_status()
        yield agent.client.get(f"{agent.url}/metrics").text
    finally:
        agent.stop()
        agent.client.close()


def test_promtool_has_no_remark_on_a_real_agents_metrics(page: str) -> None:
    assert promtool("check", "metrics", given=page) == ""


def test_every_metric_of_alerts_and_dashboard_is_one_that_a_real_agent_has(page: str) -> None:
    families = list(text_string_to_metric_families(page))
    samples = {sample.name for family in families for sample in family.samples}
    declared = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    rules = alerts(yaml.safe_load(RULES.read_text(encoding="utf-8"))).values()
    named = set().union(*map(metrics_in, [*_queries(), *(rule["expr"] for rule in rules)]))
    named.remove("up")  # Prometheus' own
    assert named - samples <= SITUATIONAL
    assert named & SITUATIONAL <= declared


def test_every_query_of_the_dashboard_parses(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(_queries())
    ]
    path = tmp_path / "queries.yaml"
    groups = {"groups": [{"name": "panels", "rules": rules}]}
    path.write_text(yaml.safe_dump(groups), encoding="utf-8")
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def test_every_query_is_narrowed_by_the_variables_that_there_are() -> None:
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    for query in _queries():
        assert set(re.findall(r"\$(\w+)", query)) <= variables | {"__rate_interval"}
        found = selectors_in(query)
        assert len(found) >= len(metrics_in(query)) > 0
        assert all('job=~"$job",namespace=~"$namespace"' in each for each in found)


def test_no_data_source_is_fixed() -> None:
    told = [each["datasource"] for panel in PANELS for each in (panel, *panel["targets"])]
    asked = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    told += [each["datasource"] for each in asked]
    assert told == [{"type": "prometheus", "uid": "${datasource}"}] * len(told)


def test_panels_have_titles_and_numbers_of_their_own_and_do_not_overlap() -> None:
    every = DASHBOARD["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert len({panel["title"] for panel in every}) == len(every)
    taken = [
        (x, y)
        for panel in every
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
