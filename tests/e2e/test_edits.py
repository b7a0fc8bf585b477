"""A person edits the manifest while models serve: only what changed moves (R2, R4)."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.gguf_file import header
from tests.waiting import wait_until


@pytest.fixture
def serving(agent: Agent) -> Agent:
    """An agent whose models `a` and `b` are loaded."""
    agent.write(manifest(model("a"), model("b")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.wait_state("b", "loaded")
    return agent


def pids(agent: Agent) -> dict[str, int]:
    return {entry["name"]: entry["pid"] for entry in agent.self_view()["models"]}


def serves(agent: Agent, name: str) -> bool:
    answer = agent.post("/v1/chat/completions", {"model": name, "messages": []})
    return answer.status_code == 200


def test_adding_a_model_starts_only_it(serving: Agent) -> None:
    before = pids(serving)
    serving.write(manifest(model("a"), model("b"), model("c")))
    serving.wait_state("c", "loaded")
    assert {name: pid for name, pid in pids(serving).items() if name != "c"} == before


def test_an_alias_is_served_without_a_restart(serving: Agent) -> None:
    """Scenarios 51 and 52: llama-swap#1138, #399, PR#230."""
    before = pids(serving)
    serving.write(manifest(model("a", aliases="[gpt-4o-mini]"), model("b")))
    serving.wait_model("a", lambda entry: entry["aliases"] == ["gpt-4o-mini"])
    assert serves(serving, "gpt-4o-mini")
    assert pids(serving) == before


def test_changed_extra_args_restart_only_that_model(serving: Agent) -> None:
    before = pids(serving)
    serving.write(manifest(model("a", extra_args="{ctx_size: 128}"), model("b")))

    def changed(entry: Entry) -> bool:
        return bool(entry["state"] == "loaded" and entry["pid"] != before["a"])

    serving.wait_model("a", changed)
    assert pids(serving)["b"] == before["b"]


def test_a_variable_that_the_agent_does_not_have_costs_nothing(serving: Agent) -> None:
    """A refused spec never costs what serves (docs/states.md)."""
    before = pids(serving)
    serving.write(manifest(model("a", env="{A_TOKEN: {from_env: NOPE}}"), model("b")))
    entry = serving.wait_model("a", lambda entry: entry["target"] is not None)
    assert (entry["state"], entry["target"]["state"]) == ("loaded", "blocked")
    assert "env A_TOKEN is from_env NOPE" in entry["target"]["reason"]
    assert pids(serving) == before
    assert serves(serving, "a")


@pytest.mark.slow
def test_a_secret_s_file_that_is_missing_costs_nothing_until_it_is_there(serving: Agent) -> None:
    """The change is made by itself once the file appears; its content is never told."""
    before = pids(serving)
    secret = serving.root / "secret"
    serving.write(manifest(model("a", env=f"{{A_TOKEN: {{from_file: {secret}}}}}"), model("b")))
    entry = serving.wait_model("a", lambda entry: entry["target"] is not None)
    assert (entry["state"], entry["target"]["state"]) == ("loaded", "error")
    assert f"from_file {secret}: No such file" in entry["target"]["reason"]
    assert pids(serving) == before
    assert serves(serving, "a")
    secret.write_text("hunter22", encoding="utf-8")

    def changed(entry: Entry) -> bool:
        return bool(entry["state"] == "loaded" and entry["pid"] != before["a"])

    after = serving.wait_model("a", changed)
    assert pids(serving)["b"] == before["b"]
    environ = Path(f"/proc/{after['pid']}/environ").read_bytes()
    assert b"A_TOKEN=hunter22" in environ.split(b"\0")
    assert "hunter22" not in serving.log + str(serving.self_view())


def test_a_context_that_memory_has_no_room_for_costs_nothing(serving: Agent) -> None:
    """Scenario 16 (gpustack#5933, #5513): it is refused with numbers, and what serves goes on."""
    before = pids(serving)
    serving.model_file("gguf/large_cache").write_bytes(header(LARGE_CACHE))
    asks = {"source": "gguf/large_cache", "extra_args": "{ctx_size: 268435456}"}
    serving.write(manifest(model("a", **asks), model("b"), model("c", **asks)))
    refused = serving.wait_state("c", "blocked")["reason"]
    assert re.match(
        r"cannot start: it needs \d+\.\d GiB of memory \(weights \d MiB, KV cache 32768\.0 GiB for "
        r"268,435,456 tokens, \d+ MiB else\) on this node, which has \d+\.\d GiB in all; ask for ",
        refused,
    )
    told = serving.client.get(f"{serving.url}/api/management/models/c").json()["memory"]
    assert (told["context_tokens"], told["kv_cache_bytes"]) == (1 << 28, 1 << 45)
    entry = serving.wait_model("a", lambda entry: (entry["target"] or {}).get("state") == "blocked")
    assert "on this node, which has " in entry["target"]["reason"]
    assert {name: pid for name, pid in pids(serving).items() if name != "c"} == before
    assert serves(serving, "a")
    asks |= {"skip_memory_check": "true"}
    serving.write(manifest(model("a"), model("b", skip_memory_check="true"), model("c", **asks)))
    serving.wait_state("c", "loaded")
    serving.wait_model("a", lambda entry: entry["target"] is None)
    assert {name: pid for name, pid in pids(serving).items() if name != "c"} == before


LARGE_CACHE = {
    "general.architecture": "llama",
    "llama.context_length": 4096,
    "llama.embedding_length": 4096,
    "llama.block_count": 32,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}
"""As of Llama 3 8B: 128 KiB a token."""


def test_deleting_a_model_stops_only_it(serving: Agent) -> None:
    before = pids(serving)
    serving.write(manifest(model("b")))
    serving.wait_gone("a")
    assert pids(serving) == {"b": before["b"]}
    assert not is_alive(before["a"])


def test_deleting_a_file_of_the_directory_stops_its_models(agent: Agent) -> None:
    agent.write(manifest(model("a")), "a.yaml")
    agent.write(manifest(model("b")), "b.yaml")
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    pid = agent.wait_state("b", "loaded")["pid"]
    (agent.manifests / "a.yaml").unlink()
    agent.wait_gone("a")
    assert pids(agent) == {"b": pid}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nspec: {models: [", "models.yaml:3:"),
        ("", "models.yaml"),
        (manifest(model("a", soruce="x"), model("b")), "did you mean"),
        (manifest(), "allow_empty"),
    ],
    ids=["truncated", "empty-file", "unknown-key", "no-models"],
)
def test_a_bad_manifest_changes_nothing_and_is_said(serving: Agent, text: str, said: str) -> None:
    """Scenarios 40 to 43: argo-cd#2573, #3996, #10987, flux2#1577."""
    before = pids(serving)
    serving.write(text)
    condition = serving.wait_condition("ManifestValid", "False")
    assert said in condition["message"]
    assert said in serving.log
    assert pids(serving) == before
    assert serves(serving, "a")
    serving.write(manifest(model("a"), model("b"), model("c")))
    serving.wait_state("c", "loaded")
    assert serving.condition("ManifestValid")["status"] == "True"  # type: ignore[index]


def test_a_vanished_directory_changes_nothing_and_its_return_is_noticed(serving: Agent) -> None:
    """Scenario 40, argo-cd#2573: an unreachable source is no empty source."""
    before = pids(serving)
    away = serving.root / "away"
    serving.manifests.rename(away)
    serving.wait_condition("SourceReady", "False")
    assert pids(serving) == before
    away.rename(serving.manifests)
    serving.wait_condition("SourceReady", "True")
    serving.write(manifest(model("a"), model("b"), model("c")))
    serving.wait_state("c", "loaded")
    assert {name: pid for name, pid in pids(serving).items() if name != "c"} == before


def test_an_agent_that_starts_without_its_source_uses_the_last_good_manifest(
    serving: Agent,
) -> None:
    """R2 across restarts."""
    assert serving.stop() == 0
    shutil.rmtree(serving.manifests)
    serving.start()
    serving.wait_up()
    serving.wait_state("a", "loaded")
    assert serving.condition("SourceReady")["status"] == "False"  # type: ignore[index]


def test_a_configmap_swap_is_taken_up(agent: Agent) -> None:
    """Scenario 38, llama-swap#671 and PR#217: the `..data` link is swapped, no file changes."""

    def publish(generation: str, text: str) -> None:
        folder = agent.manifests / generation
        folder.mkdir(parents=True)
        (folder / "models.yaml").write_text(text, encoding="utf-8")
        fresh = agent.manifests / "..data_tmp"
        fresh.symlink_to(generation)
        fresh.rename(agent.manifests / "..data")

    publish("..2026_01", manifest(model("a")))
    (agent.manifests / "models.yaml").symlink_to("..data/models.yaml")
    agent.start()
    agent.wait_up()
    pid = agent.wait_state("a", "loaded")["pid"]
    publish("..2026_02", manifest(model("a"), model("b")))
    agent.wait_state("b", "loaded")
    assert pids(agent)["a"] == pid


def test_a_disabled_model_is_stopped_and_says_so(serving: Agent) -> None:
    serving.write(manifest(model("a", enabled="false"), model("b")))
    serving.wait_state("a", "disabled")
    answer = serving.post("/v1/chat/completions", {"model": "a", "messages": []})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_disabled")


def test_suspend_starts_and_stops_nothing(serving: Agent) -> None:
    before = pids(serving)
    serving.write(manifest(model("b"), model("c"), spec="  suspend: true\n"))
    serving.wait_condition("Suspended", "True")
    now = pids(serving)
    assert {name: now.get(name) for name in ("a", "b", "c")} == {**before, "c": None}
    serving.write(manifest(model("b"), model("c")))
    serving.wait_gone("a")
    serving.wait_state("c", "loaded")


def test_models_of_other_nodes_are_left_alone(agent: Agent) -> None:
    agent.write(manifest(model("here"), model("there", nodes="[node-b]")))
    agent.start()
    agent.wait_up()
    agent.wait_state("here", "loaded")
    assert agent.model("there") is None


@pytest.mark.slow
def test_another_node_name_stops_nothing_until_it_is_meant(make_agent: MakeAgent) -> None:
    """R2: the data folder remembers whose it is."""
    agent = make_agent()
    agent.model_file()
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.stop()
    agent.start("--node", "node-b")
    wait_until(lambda: agent.exited is not None, what="the agent refuses")
    assert agent.exited == 1
    assert "--rename-node node-a" in agent.log
    agent.start("--node", "node-b", "--rename-node", "node-a")
    agent.wait_up()
    agent.wait_state("a", "loaded")


def test_the_hub_tells_the_format_where_no_name_does_before_anything_is_fetched(
    make_agent: MakeAgent,
) -> None:
    agent = make_agent()
    agent.environment["PATH"] = os.defpath
    agent.model_file("models/big", "model.safetensors")
    agent.model_file("models/small")
    fallback = "{source: models/small}"
    big = {"source": "models/big", "backend": "auto", "gpus": "0"}
    agent.write(
        manifest(
            model("small", source="models/small", backend="auto", gpus="0"),
            model("big", **big),
            model("falls", **big, fallback=fallback),
            model("said", source="models/big", format="gguf", gpus="0"),
        )
    )
    agent.start()
    agent.wait_up()

    assert agent.wait_state("small", "loaded")["backend"] == "llama-server-cpu"
    refused = agent.wait_state("big", "blocked")["reason"]
    assert refused.startswith("no backend on this node can run safetensors on the CPU")
    assert "if its files are GGUF" not in refused
    falls = agent.wait_state("falls", "loaded")["backend_reason"]
    assert falls.startswith("fallback: the first for gguf on CPU that is here: ")
    said = agent.wait_state("said", "error")["reason"]
    assert "the manifest says format: gguf, and there is model.safetensors" in said
    assert not list((agent.data / "models").rglob("*.safetensors"))

    agent.write(manifest(model("big", **big)))  # else another one fetches what it waits for
    for other in ("small", "falls", "said"):
        agent.wait_gone(other)
    (agent.hub / "models/big/model.safetensors").unlink()
    agent.model_file("models/big")
    agent.wait_state("big", "blocked")
    agent.post("/api/management/reconcile", {}).raise_for_status()
    assert agent.wait_state("big", "loaded")["backend"] == "llama-server-cpu"


def test_a_node_without_vllm_serves_the_fallback_and_fetches_nothing_else(
    make_agent: MakeAgent,
) -> None:
    agent = make_agent()
    agent.environment["PATH"] = os.defpath
    agent.model_file()
    agent.model_file("huggingface/org_big", "model.safetensors")
    agent.model_file("gguf/org_big")
    source = {"source": "huggingface/org_big", "backend": "auto", "gpus": "0"}
    fallback = "{source: gguf/test_model, extra_args: {ctx_size: 64}}"
    chat = model("chat", **source, extra_args="{max_model_len: 8}", fallback=fallback)
    hopeless = model("hopeless", **source, fallback="{source: huggingface/org_other}")
    agent.write(manifest(chat, hopeless, model("without", **source)))
    agent.start()
    agent.wait_up()

    entry = agent.wait_state("chat", "loaded")
    assert entry["backend"] == "llama-server-cpu"
    assert entry["backend_reason"].startswith("fallback: the first for gguf on CPU that is here: ")
    assert "; huggingface/org_big cannot run here: no backend on" in entry["backend_reason"]
    told = agent.client.get(f"{agent.url}/api/management/models/chat").json()
    assert [each.partition(":")[0] for each in told["passed_over"]] == ["vllm-cpu"]
    assert told["spec"]["source"] == "gguf/test_model"
    assert serves(agent, "chat")
    both = agent.wait_state("hopeless", "blocked")["reason"]
    assert "huggingface/org_big cannot run here: no backend on this node can run safeten" in both
    assert "; nor its fallback: no backend on this node can run safetensors" in both
    agent.wait_model("without", lambda each: "the hub holds gguf/org_big: name" in each["reason"])
    assert sorted(path.name for path in (agent.data / "models").glob("[!.]*")) == ["gguf"]

    before = pids(agent)
    chat = model("chat", **source, aliases="[gpt]", fallback=fallback)
    agent.write(manifest(chat, model("without", **source, fallback="{source: gguf/org_big}")))
    agent.wait_state("without", "loaded")
    agent.wait_gone("hopeless")
    assert serves(agent, "gpt")
    assert pids(agent)["chat"] == before["chat"]
    file = agent.manifests / "models.yaml"
    planned = xgen_model("plan", "--manifest", file, "--data-dir", agent.data)
    assert (planned.returncode, planned.stdout.count("unchanged")) == (0, 3), planned.stdout
