"""Models on GPUs outlive their agent: the next one goes on with them where they are (R9)."""

import os
import signal

import pytest

from tests.backend.test_vllm_builds import command as vllm_command
from tests.backend.test_vllm_builds import environment as vllm_environment
from tests.e2e.agent import Agent, Entry, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.e2e.test_adoption import kill, start
from tests.e2e.test_gpus import Machine, environment, on_gpu, says
from tests.engines.tiny_models import write_llama
from tests.observe.gpu_libraries import GpuLibraries

pytestmark = pytest.mark.slow


@pytest.fixture
def machine(make_agent: MakeAgent, libraries: GpuLibraries) -> Machine:
    agent = make_agent()
    agent.model_file()
    return Machine(agent, libraries)


def held(agent: Agent, *names: str) -> dict[str, tuple[int, list[str]]]:
    """Pid and GPUs of each, once all are loaded."""
    entries = {name: agent.wait_state(name, "loaded") for name in names}
    return {name: (entry["pid"], entry["gpu_ids"]) for name, entry in entries.items()}


def events(agent: Agent) -> list[Entry]:
    told: list[Entry] = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    return told


def test_what_runs_keeps_its_gpus_and_who_wants_them_waits(machine: Machine) -> None:
    """Scenario 65: of a count exactly those, though others with lower numbers are free by now."""
    agent = machine.agent
    named, pair = on_gpu("named", gpu_ids="[3]"), on_gpu("pair", gpus="2")
    agent.write(manifest(on_gpu("low", gpu_ids="[0]"), named, pair))
    start(agent)
    before = held(agent, "low", "named", "pair")
    assert before["pair"][1] == ["GPU-1", "GPU-2"]

    kill(agent)
    rival, many = on_gpu("rival", gpu_ids="[GPU-3]", priority="9"), on_gpu("many", gpus="2")
    agent.write(manifest(named, pair, rival, many))
    start(agent)

    assert "GPU GPU-3 is claimed by named too" in agent.wait_state("rival", "blocked")["reason"]
    assert "cannot give it 2 GPUs: 1 of 4" in agent.wait_state("many", "blocked")["reason"]
    agent.wait_gone("low")
    assert held(agent, "named", "pair") == {name: before[name] for name in ("named", "pair")}
    assert environment(before["pair"][0])["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"

    kill(agent)
    agent.write(manifest(pair, rival))
    start(agent)

    after = held(agent, "pair", "rival")
    assert (after["pair"], after["rival"][1]) == (before["pair"], ["GPU-3"])
    assert not is_alive(before["named"][0])
    order = [(event["kind"], event["model"]) for event in events(agent)]
    gone = max(at for at, (_, name) in enumerate(order) if name == "named")
    assert gone < order.index(("BackendStarted", "rival"))
    assert agent.stop() == 0


def test_a_gpu_that_was_lost_meanwhile_is_told_and_what_runs_on_it_is_not_touched(
    machine: Machine,
) -> None:
    """Scenarios 66 and 70."""
    agent = machine.agent
    named, one = on_gpu("named", gpu_ids="[1]"), on_gpu("one", gpus="1")
    agent.write(manifest(named, one))
    start(agent)
    before = held(agent, "named", "one")

    kill(agent)
    late, three = on_gpu("late", gpu_ids="[GPU-1]"), on_gpu("three", gpus="3")
    machine.now_tells(named, one, late, three, lost=1)
    start(agent)

    assert agent.wait_condition("DevicesKnown", "False")["reason"] == "GpuLost"
    assert held(agent, "named", "one") == before
    assert agent.wait_state("late", "blocked")
    assert "cannot give it 3 GPUs: 2 of 3" in agent.wait_state("three", "blocked")["reason"]

    os.kill(before["named"][0], signal.SIGKILL)
    lost = agent.wait_model("named", says("GPU 1 (GPU-1) is not used: lost"))
    assert lost["state"] in ("blocked", "error")
    machine.now_tells(named, one)
    agent.wait_condition("DevicesKnown", "True")
    again = held(agent, "named", "one")
    assert (again["one"], again["named"][1]) == (before["one"], ["GPU-1"])
    assert agent.stop() == 0


def test_a_fallback_goes_on_though_its_first_choice_could_run_by_now(machine: Machine) -> None:
    """R4: what `auto` came to holds while the process lives."""
    agent = machine.agent
    agent.environment["PATH"] = os.defpath
    write_llama(agent.hub / "huggingface" / "org_big")
    tensors = {"source": "huggingface/org_big", "backend": "auto", "gpus": "1"}
    falls = model("falls", **tensors, fallback="{source: gguf/test_model}")
    agent.write(manifest(falls))
    start(agent)
    before = agent.wait_state("falls", "loaded")
    assert before["backend_reason"].startswith("fallback: ")
    assert before["gpu_ids"] == ["GPU-0"]

    kill(agent)
    python = vllm_environment(agent.root / "vllm", "vllm 0.32.0", "torch 2.13.0+cu129")
    agent.write(manifest(falls, model("new", **tensors)))
    start(agent, "--vllm", str(vllm_command(agent.root / "vllm", python)))

    agent.wait_model("new", lambda entry: entry["backend"] == "vllm-cuda")
    after = agent.wait_state("falls", "loaded")
    same = ("pid", "gpu_ids", "backend", "spec_hash", "digest", "restarts")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    answer = agent.post("/v1/chat/completions", {"model": "falls", "messages": []})
    assert answer.status_code == 200
    assert agent.stop() == 0
