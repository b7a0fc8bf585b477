"""A real vLLM on the CPU outlives its agent, and the next one goes on with it or ends it (R9).

Each test waits until it is loaded and may leave it loading: a load takes half a minute.
"""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.apply.shared_memory import mapped_by
from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent, with_loaded
from tests.e2e.manifests import manifest
from tests.e2e.test_adoption import events, kill, kinds, start
from tests.e2e.vllm_processes import (
    DEFAULTS,
    LOAD_SECONDS,
    VLLM,
    assert_gone,
    engine_core,
    family,
    flag,
    shared_memory,
    sockets,
)
from tests.engines.tiny_models import write_llama
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@dataclass(frozen=True, kw_only=True)
class Tree:
    """What one vLLM consists of while it serves."""

    pid: int
    port: int
    members: list[int]
    segments: frozenset[int]
    sockets: Path

    @property
    def core(self) -> int:
        return engine_core(self.members)

    def lives(self, agent: Agent) -> bool:
        return set(self.members) <= set(agent.processes()) and self.segments <= shared_memory()

    def assert_gone(self, agent: Agent) -> None:
        assert_gone(agent, self.members, self.segments, self.port)
        wait_until(lambda: not self.sockets.exists(), what="its sockets are gone")


def chat(max_model_len: str) -> str:
    return (
        "{name: chat, source: huggingface/tiny_llama, "
        f"extra_args: {{max_model_len: {max_model_len}}}}}"
    )


@pytest.fixture(scope="module")
def lasting(make_lasting_agent: MakeAgent) -> Agent:
    assert VLLM.is_file(), "run `make test-engines`, which installs vLLM"
    agent = make_lasting_agent("--vllm", str(VLLM), real=True)
    write_llama(agent.hub / "huggingface" / "tiny_llama")
    return agent


@pytest.fixture
def node(lasting: Agent) -> Agent:
    """Up, and the model serves."""
    return with_loaded(lasting, manifest(chat("2k"), spec=DEFAULTS), ["chat"], LOAD_SECONDS)


def serving(agent: Agent) -> Entry:
    """It answers."""
    entry = agent.wait_state("chat", "loaded", seconds=LOAD_SECONDS)
    body = {"model": "chat", "prompt": "Once", "max_tokens": 3, "ignore_eos": True}
    answer = agent.post("/v1/completions", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 3
    return entry


def tree(entry: Entry) -> Tree:
    members = sorted(family(entry["pid"]))
    found = Tree(
        pid=entry["pid"],
        port=entry["port"],
        members=members,
        segments=mapped_by(members) & shared_memory(),  # some are mapped, and have no name left
        sockets=sockets(entry["pid"]),
    )
    assert len(members) == 4
    assert found.segments
    assert any(path.is_socket() for path in found.sockets.iterdir())
    return found


def test_a_killed_agent_costs_nothing_of_it(node: Agent) -> None:
    before = serving(node)
    made = tree(before)

    kill(node)
    assert made.lives(node)
    start(node)

    after = serving(node)
    assert (after["pid"], after["restarts"]) == (made.pid, 0)
    assert kinds(node, "chat")[0] == "BackendAdopted"
    assert made.lives(node)
    assert tree(after) == made
    known = node.wait_model("chat", lambda entry: entry["engine"]["installed"] is not None)
    assert known["engine"]["drift"] is None


def test_what_is_half_dead_is_reaped_to_its_last_segment_and_started_anew(node: Agent) -> None:
    """Its EngineCore dies while no agent is there, and its API server serves a while longer."""
    made = tree(serving(node))

    kill(node)
    os.kill(made.core, signal.SIGKILL)
    start(node)

    made.assert_gone(node)
    assert serving(node)["pid"] != made.pid


def test_what_is_dead_as_a_whole_leaves_no_segment_and_no_socket(node: Agent) -> None:
    """Nobody lives who could tell what was shared; the record does."""
    made = tree(serving(node))

    kill(node)
    os.killpg(made.pid, signal.SIGKILL)
    wait_until(lambda: node.processes() == [], what="all are dead")
    assert made.segments & shared_memory()
    assert made.sockets.exists()
    start(node)

    made.assert_gone(node)
    assert serving(node)["pid"] != made.pid


def test_an_agent_that_leaves_it_has_it_back_and_a_change_meanwhile_stops_it(node: Agent) -> None:
    before = serving(node)
    made = tree(before)
    kill(node)
    start(node, "--on-exit", "leave")
    serving(node)

    assert node.stop() == 0
    assert made.lives(node)
    start(node, "--on-exit", "leave")

    after = serving(node)
    assert (after["pid"], after["restarts"]) == (made.pid, before["restarts"])
    assert tree(after) == made

    assert node.stop() == 0
    node.write(manifest(chat("1k"), spec=DEFAULTS))
    start(node)

    node.wait_model("chat", lambda now: now["pid"] != made.pid, seconds=LOAD_SECONDS)
    made.assert_gone(node)
    changed = serving(node)
    assert flag(changed["pid"], "--max-model-len") == "1k"
    ends = [each["reason"] for each in events(node, "chat") if each["kind"] == "BackendExited"]
    assert [end.partition(":")[0] for end in ends] == ["stopped"]
    last = tree(changed)
    assert node.stop() == 0
    last.assert_gone(node)
    assert list(node.scratch.iterdir()) == []
