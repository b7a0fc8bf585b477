"""Real agents, a real Prometheus, the alerts and the dashboard as they are."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import ROOT
from tests.deploy.prometheus import Prometheus, documented_scrapes, prometheus
from tests.deploy.promtool import RULES
from tests.e2e.agent import Agent, llama_server_stand_in
from tests.e2e.manifests import manifest, model
from tests.ports import own_ports
from tests.waiting import wait_until

DASHBOARD = ROOT / "charts" / "xgen-model" / "files" / "dashboard.json"
Sight = tuple[dict[str, Agent], Prometheus]


def _rules_at_once() -> Any:
    """The alerts, but none waits before it fires."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return rules


@pytest.fixture
def sight(tmp_path: Path) -> Iterator[Sight]:
    """Two agents that know of each other, each with a model `chat`, and who watches them."""
    ports = iter(own_ports()[-3:])
    addresses = {node: f"127.0.0.1:{next(ports)}" for node in ("gpu-a", "gpu-b")}
    agents = {}
    with ExitStack() as stack:
        for node, address in addresses.items():
            root = tmp_path / node
            root.mkdir()
            more = ("--peers", ",".join(addresses.values()))
            engine = ("--llama-server", str(llama_server_stand_in(root)))
            agents[node] = agent = Agent(
                root=root, node=node, listen=address, args=[*engine, *more]
            )
            agent.data.mkdir()
            agent.model_file()
            agent.write(manifest(model("chat", nodes="all")))
            agent.start()
            stack.callback(_end, agent)
        for agent in agents.values():
            agent.wait_up()
            agent.wait_state("chat", "loaded")
        scrapes = documented_scrapes(addresses)
        given = {"port": next(ports), "scrapes": scrapes, "rules": _rules_at_once()}
        yield agents, stack.enter_context(prometheus(tmp_path, **given))


def _end(agent: Agent) -> None:
    if agent.exited is None:
        agent.stop()
    agent.client.close()
    for pid in agent.processes():
        agent.end_stranger(pid)


def _until_firing(watcher: Prometheus, alert: str, node: str | None, name: str | None) -> None:
    wait_until(
        lambda: (alert, node, name) in watcher.firing(),
        what=f"{alert} fires",
        seconds=180,
    )


@pytest.mark.timeout(600)
def test_agents_that_are_well_raise_no_alert_and_those_that_are_not_do(sight: Sight) -> None:
    agents, watcher = sight
    for agent in agents.values():
        agent.post("/v1/chat/completions", {"model": "chat", "messages": []}).raise_for_status()
    wait_until(
        lambda: len(watcher.query('xgen_peer_up{job="xgen-model"} == 1')) == 2,
        what="both agents are scraped",
        seconds=180,
    )
    # That a counter stands still is only over once it was seen to move.
    wait_until(lambda: not watcher.firing(), what="no alert fires", seconds=180)

    bad = "{STAND_IN: '--exit-code 3 --exit-after 0'}"
    agents["gpu-a"].write(
        manifest(
            model("chat", nodes="all"),
            model("broken", nodes="[gpu-a]", env=bad, on_failure="stop"),
        )
    )
    _until_firing(watcher, "XgenModelBlocked", "gpu-a", "broken")
    _until_firing(watcher, "XgenModelUnserved", None, "broken")
    _until_firing(watcher, "XgenRevisionSkew", None, None)
    agents["gpu-b"].write("models: [")
    _until_firing(watcher, "XgenManifestRefused", "gpu-b", None)
    agents["gpu-b"].stop()
    _until_firing(watcher, "XgenAgentDown", "gpu-b", None)
    _until_firing(watcher, "XgenPeerUnreachable", "gpu-b", None)
    assert not any(name == "chat" for _, _, name in watcher.firing())


def test_prometheus_takes_every_query_of_the_dashboard(sight: Sight) -> None:
    _, watcher = sight
    wait_until(
        lambda: len(watcher.query("xgen_agent_info")) == 2,
        what="both agents are scraped",
        seconds=100,
    )
    every = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    panels = [each for each in every if "targets" in each]
    empty = set()
    for panel in panels:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m")
            for name in ("job", "namespace", "node", "model"):
                query = query.replace(f"${name}", ".*")
            if not watcher.query(query):
                empty.add(panel["title"])
    shown = {"Agents up", "Models wanted", "Models by node", "Revisions in force", "Memory"}
    assert not empty & shown
