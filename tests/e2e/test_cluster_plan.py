"""`plan` of a cluster: each node says what it would do, and one that cannot is told as such."""

from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.agent import Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.ports import own_ports
from tests.waiting import wait_until

NODES = ("node-a", "node-b")
IN_FORCE = manifest(
    model("here", nodes="[node-a]"), model("there", nodes="[node-b]"), model("both", nodes="all")
)
WANTED = manifest(
    model("here", nodes="[node-a]", extra_args="{ctx_size: 4096}"),
    model("both", nodes="all"),
    model("more", nodes="[node-b]"),
)


@pytest.fixture
def cluster(make_agent: MakeAgent) -> list[Agent]:
    """Two agents that know each other, and run what is in force."""
    ports = own_ports()[-2:]
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    nodes = [make_agent("--peers", peers, name=name) for name in NODES]
    for node, port in zip(nodes, ports, strict=True):
        node.node, node.listen = node.root.name, f"127.0.0.1:{port}"
        node.model_file()
        node.write(IN_FORCE)
        node.start()
    for node in nodes:
        node.wait_up()
        node.wait_state("both", "loaded")
    nodes[0].wait_state("here", "loaded")
    nodes[1].wait_state("there", "loaded")
    wait_until(lambda: reachable(nodes[0]) == list(NODES), what="both know each other")
    return nodes


def reachable(agent: Agent) -> list[str]:
    servers = agent.client.get(f"{agent.url}/api/cluster/servers").json()["servers"]
    return [each["node"] for each in servers if each["reachable"]]


def test_each_node_says_what_it_would_do(cluster: list[Agent], tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text(WANTED)
    ask = ("plan", "--manifest", wanted, "--server", cluster[0].url)

    answer = xgen_model(*ask, "--output", "json")
    one = xgen_model(*ask, "--output", "json", "--node", "node-b")

    plan = plan_of(answer.stdout)
    assert answer.returncode == 2
    assert {
        node["node"]: {each["model"]: each["action"] for each in node["models"]}
        for node in plan["nodes"]
    } == {
        "node-a": {"here": "surge", "both": "unchanged"},
        "node-b": {"there": "stop", "both": "unchanged", "more": "start"},
    }
    assert [node["node"] for node in plan_of(one.stdout)["nodes"]] == ["node-b"]


def test_a_node_that_cannot_be_asked_is_told_beside_the_others(
    cluster: list[Agent], tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text(WANTED)
    cluster[1].stop()
    wait_until(lambda: reachable(cluster[0]) == ["node-a"], what="node-b is known to be gone")
    ask = ("plan", "--manifest", wanted, "--server", cluster[0].url)

    answer, text = xgen_model(*ask, "--output", "json"), xgen_model(*ask)

    nodes = {node["node"]: node for node in plan_of(answer.stdout)["nodes"]}
    assert (answer.returncode, text.returncode) == (1, 1)
    assert nodes["node-a"]["unasked"] is None
    assert [each["model"] for each in nodes["node-a"]["models"]] == ["both", "here"]
    assert (nodes["node-b"]["models"], nodes["node-b"]["errors"]) == ([], [])
    assert "cannot be reached since" in nodes["node-b"]["unasked"]
    assert "not asked: " in text.stdout
    assert text.stdout.rstrip().endswith("1 node not asked")


def test_what_no_node_can_take_is_an_error(cluster: list[Agent], tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(manifest(model("here", nodes="[node-a]", backend="none-such")))

    answer = xgen_model("plan", "--manifest", bad, "--server", cluster[0].url)

    assert (answer.returncode, answer.stdout) == (1, "")
    assert "none-such" in answer.stderr
