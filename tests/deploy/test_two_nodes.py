"""The example of two nodes without Kubernetes: its files, on two addresses of this machine."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.helm import ROOT
from tests.e2e.agent import Agent, llama_server_stand_in
from tests.e2e.conftest import end_agents
from tests.waiting import wait_until

EXAMPLE = ROOT / "examples" / "two-nodes"
HOSTS = {"10.0.0.1": "127.0.0.2", "10.0.0.2": "127.0.0.3"}


def settings(node: str, places: dict[str, str]) -> dict[str, str]:
    """Of a node's file; `places`: what stands here for what stands there."""
    text = (EXAMPLE / f"{node}.env").read_text(encoding="utf-8")
    for there, here in places.items():
        text = text.replace(there, here)
    return dict(line.split("=", 1) for line in text.splitlines() if line)


def free_places() -> dict[str, str]:
    with ExitStack() as stack:
        found = {}
        for there, here in HOSTS.items():
            held = stack.enter_context(socket.socket())
            held.bind((here, 0))
            found[f"{there}:8000"] = f"{here}:{held.getsockname()[1]}"
        return found


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, Agent]]:
    token = tmp_path / "cluster-token"
    token.write_text("5f" * 32)
    token.chmod(0o600)
    places = free_places() | {"/etc/xgen-model/cluster-token": str(token)}
    made = {}
    for node in ("node-a", "node-b"):
        root = tmp_path / node
        root.mkdir()
        told = settings(node, places)
        made[node] = Agent(
            root=root,
            node=told["XGEN_NODE"],
            listen=told["XGEN_LISTEN"],
            environment=told,
            args=["--llama-server", str(llama_server_stand_in(root))],
        )
        made[node].model_file("gguf/google_gemma-3-270m")
        text = (EXAMPLE / "manifest" / "models.yaml").read_text(encoding="utf-8")
        made[node].write(text)
        made[node].start()
    yield made
    end_agents(list(made.values()))


def served_by(asked: Agent, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    answer = asked.post("/v1/chat/completions", body)
    return answer.headers.get("X-Served-By", "") if answer.status_code == 200 else ""


def test_either_node_answers_for_both_and_one_may_end(nodes: dict[str, Agent]) -> None:
    first, second = nodes["node-a"], nodes["node-b"]
    for agent in nodes.values():
        agent.wait_up()
        agent.wait_state("chat", "loaded")
    second.wait_state("chat-b", "loaded")
    for agent in nodes.values():
        wait_until(
            lambda agent=agent: served_by(agent, "chat-b") == "node-b/chat-b",  # type: ignore[misc]
            what=f"chat-b through {agent.node}\n{agent.recent_log}",
        )
    assert second.stop() == 0
    wait_until(
        lambda: served_by(first, "gpt-4o-mini") == "node-a/chat",
        what=f"chat with one node\n{first.recent_log}",
    )
