"""The node's policy: what a manifest asks for in vain costs nothing; what is allowed is done."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, model, real_model
from tests.model_files import gemma


def refused(agent: Agent, name: str, pid: int) -> str:
    """The reason, once it is there; the backend is the one that served before, and serves."""

    def told(entry: Entry) -> bool:
        return entry["target"] is not None and entry["target"]["state"] == "blocked"

    entry = agent.wait_model(name, told)
    assert (entry["state"], entry["pid"]) == ("loaded", pid)
    answer = agent.post("/v1/completions", {"model": name, "prompt": "hi", "max_tokens": 1})
    assert answer.status_code == 200
    return str(entry["target"]["reason"])


def up(agent: Agent, *models: str) -> None:
    agent.write(manifest(*models))
    agent.start()
    agent.wait_up()


def up_again(agent: Agent, *allowed: str) -> None:
    """With what the operator allows now."""
    assert agent.stop() == 0
    agent.start(*allowed)
    agent.wait_up()


@pytest.mark.slow
def test_a_variable_of_the_loader_leaves_what_runs_alone(agent: Agent) -> None:
    """LD_PRELOAD in a pull request is code on every node."""
    up(agent, model("a"), model("b"))
    pids = {name: agent.wait_state(name, "loaded")["pid"] for name in "ab"}
    agent.write(manifest(model("a", env="{LD_PRELOAD: /tmp/x.so}"), model("b", aliases="[c]")))
    reason = refused(agent, "a", pids["a"])
    assert "cannot use env.LD_PRELOAD (" in reason
    assert reason.endswith("--allow-engine-env LD_PRELOAD")
    # Only that model is refused: the rest of the same file is taken.
    other = agent.wait_model("b", lambda entry: entry["aliases"] == ["c"])
    assert other["pid"] == pids["b"]


@pytest.mark.slow
def test_a_file_of_the_node_is_used_below_a_folder_that_the_operator_names(
    agent: Agent,
) -> None:
    file = agent.model_file()
    up(agent, model("a", source=f"file://{file}"))
    assert "--allow-file-root" in agent.wait_state("a", "blocked")["reason"]
    up_again(agent, "--allow-file-root", str(file.parent))
    agent.wait_state("a", "loaded")


@pytest.mark.slow
def test_a_dangerous_flag_starts_where_the_operator_allows_it(agent: Agent) -> None:
    up(agent, model("a", extra_args="{slot_save_path: /tmp}"))
    entry = agent.wait_state("a", "blocked")
    assert entry["reason"].endswith("--allow-engine-arg slot_save_path")
    up_again(agent, "--allow-engine-arg", "slot-save-path")
    agent.wait_state("a", "loaded")
    events = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    started = [event["reason"] for event in events if event["kind"] == "AgentStarted"]
    assert "manifests may set" in started[-1]
    assert "slot_save_path" in started[-1]


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_a_template_of_the_node_on_a_real_llama_cpp(make_agent: MakeAgent, tmp_path: Path) -> None:
    """A file outside the model's folder is refused with the model untouched, then allowed."""
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[0].content }}", encoding="utf-8")
    agent = make_agent(real=True)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma.gguf"))
    up(agent, real_model("gemma", "ctx_size: 512"))
    before = agent.wait_state("gemma", "loaded", seconds=120)
    assert before["backend"] == "xllamacpp"
    asked = real_model("gemma", f"ctx_size: 512, chat_template_file: {template}")
    agent.write(manifest(asked))
    reason = refused(agent, "gemma", before["pid"])
    assert reason.endswith("--allow-engine-arg chat_template_file")
    up_again(agent, "--allow-engine-arg", "chat_template_file")
    agent.wait_state("gemma", "loaded", seconds=120)
    body = {"model": "gemma", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    # The template adds nothing: only the word itself is a prompt, with the start of a text.
    assert agent.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"] <= 2
