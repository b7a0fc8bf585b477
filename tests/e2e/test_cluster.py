"""Real agents that know of each other: what each shows of the others, and what befalls them."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import REPOSITORY, Agent, llama_server_stand_in
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_for, wait_until

_HOSTS = {"node-a": "127.0.0.2", "node-b": "127.0.0.3", "node-c": "127.0.0.4"}
_SECRET = "a-secret"


def _free_addresses() -> dict[str, str]:
    with ExitStack() as stack:
        found = {}
        for node, host in _HOSTS.items():
            held = stack.enter_context(socket.socket())
            held.bind((host, 0))
            found[node] = f"{host}:{held.getsockname()[1]}"
        return found


def _agent(root: Path, node: str, addresses: dict[str, str]) -> Agent:
    root.mkdir()
    peers = ",".join(addresses.values())
    agent = Agent(
        root=root,
        args=[
            *("--node", node, "--listen", addresses[node], "--peers", peers),
            *("--llama-server", str(llama_server_stand_in(root))),
        ],
    )
    agent.data.mkdir()
    agent.model_file()
    agent.write(manifest(model("chat", nodes=f"[{node}]")))
    return agent


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[dict[str, Agent]]:
    """Not started; each has a model `chat` of its own, which no manifest of another names."""
    addresses = _free_addresses()
    made = {node: _agent(tmp_path / node, node, addresses) for node in addresses}
    yield made
    for agent in made.values():
        if agent.process is not None and agent.exited is None:
            agent.stop()
        agent.client.close()
    left = [pid for agent in made.values() for pid in agent.processes()]
    assert not left


@pytest.fixture
def running(agents: dict[str, Agent]) -> dict[str, Agent]:
    for agent in agents.values():
        agent.start()
    for agent in agents.values():
        agent.wait_up()
    return agents


def _view(agent: Agent) -> Any:
    return agent.client.get(f"{agent.url}/api/cluster/servers").json()


def _server(agent: Agent, node: str) -> Any:
    return next((each for each in _view(agent)["servers"] if each["node"] == node), None)


def _wait_server(agent: Agent, node: str, *, reachable: bool, serves: bool) -> Any:
    def look() -> Any:
        server = _server(agent, node)
        if server is None or server["reachable"] is not reachable:
            return None
        return server if bool(server["loaded_models"]) is serves else None

    return wait_for(look, what=f"{node} reachable: {reachable}\n{agent.recent_log}")


def _peer_events(agent: Agent) -> list[str]:
    """Of node-c."""
    page = agent.client.get(f"{agent.url}/api/management/events").json()
    return [
        each["kind"]
        for each in page["events"]
        if each["kind"].startswith("Peer") and "node-c" in each["reason"]
    ]


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reconciler", *words],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=60,
    )


def test_every_node_shows_all_and_one_that_was_killed_comes_back(
    running: dict[str, Agent],
) -> None:
    """production-stack#656, #1091; xinference#1973; dynamo#3493."""
    first, last = running["node-a"], running["node-c"]
    for agent in running.values():
        for node in running:
            _wait_server(agent, node, reachable=True, serves=True)
    assert [each["node"] for each in _view(last)["servers"]] == list(running)
    assert last.process is not None
    last.process.kill()
    last.process.wait(10)
    lost = _wait_server(first, "node-c", reachable=False, serves=False)
    assert lost["reason"] in ("refuses connections", "reset the connection")
    assert [(each["name"], each["as_last_seen"]) for each in lost["models"]] == [("chat", True)]

    shown = _command("status", "--server", first.url)
    one = _command("status", "--server", first.url, "--node", "node-b", "--output", "json")
    none = _command("status", "--server", first.url, "--node", "node-x")
    assert "unreachable" in next(
        line for line in shown.stdout.splitlines() if line.startswith("node-c")
    )
    assert [each["node"] for each in json.loads(one.stdout)["servers"]] == ["node-b"]
    assert (none.returncode, "the agent knows node-a, node-b, node-c" in none.stderr) == (1, True)
    up = first.client.get(f"{first.url}/metrics").text
    assert 'xgen_peer_up{node="node-b"} 1.0' in up
    assert 'xgen_peer_up{node="node-c"} 0.0' in up

    last.start()
    last.wait_up()
    back = _wait_server(first, "node-c", reachable=True, serves=True)
    wait_until(
        lambda: _peer_events(first)[-2:] == ["PeerLost", "PeerFound"],
        what=f"its loss and its return are told\n{first.recent_log}",
    )
    assert back["reason"] is None


@pytest.mark.slow
def test_a_node_that_ends_is_seen_draining_and_then_gone(running: dict[str, Agent]) -> None:
    first, last = running["node-a"], running["node-b"]
    _wait_server(first, "node-b", reachable=True, serves=True)
    assert last.stop() == 0
    lost = _wait_server(first, "node-b", reachable=False, serves=False)
    assert lost["draining"] is True


def test_revisions_that_differ_are_told(running: dict[str, Agent]) -> None:
    first = running["node-a"]
    for node in running:
        _wait_server(first, node, reachable=True, serves=True)
    told = first.wait_condition("RevisionsAgree", "False")
    revisions = _view(first)["revisions"]
    assert sorted(node for nodes in revisions.values() for node in nodes) == list(running)
    assert told["message"].startswith(f"nodes are at {len(revisions)} revisions of the manifest")


@pytest.mark.slow
def test_an_agent_with_another_token_is_told_from_one_that_is_away(
    agents: dict[str, Agent], tmp_path: Path
) -> None:
    ours, other = agents["node-a"], agents["node-b"]
    (tmp_path / "ours").write_text(_SECRET)
    (tmp_path / "other").write_text("another")
    ours.start("--cluster-token-file", str(tmp_path / "ours"))
    other.start("--cluster-token-file", str(tmp_path / "other"))
    ours.wait_up()
    other.wait_up()

    def refusal() -> bool:
        return any(each["reason"] == "refuses our cluster token" for each in _view(ours)["servers"])

    wait_until(refusal, what=f"the refusal is told\n{ours.recent_log}")
    (tmp_path / "other").write_text(_SECRET)
    _wait_server(ours, "node-b", reachable=True, serves=True)
