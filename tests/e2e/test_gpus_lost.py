"""GPUs that are there and cannot be used: nothing falls to the CPU in silence."""

import pytest

from tests.e2e.agent import Agent, llama_server_stand_in
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.observe.gpu_libraries import GpuLibraries, records

GIB = 2**30
LOST: dict[str, object] = {"error": 15}
LISTING = "  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80456 MiB free)"


def card(number: int, **more: object) -> dict[str, object]:
    whole = {"uuid": f"GPU-{number}", "pci": f"0000:0{number}:00.0", "total": 80 * GIB, "used": 0}
    return whole | more


def has(agent: Agent, libraries: GpuLibraries, *cards: dict[str, object]) -> None:
    agent.environment |= libraries.machine(agent.root, nvidia=records("gpu", *cards))


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    made = make_agent()
    made.model_file()
    llama_server_stand_in(made.root, LISTING)
    return made


def amiss(agent: Agent) -> list[str]:
    events = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    return [each["reason"] for each in events if each["kind"] == "GpusChanged"]


@pytest.mark.slow
def test_a_model_waits_for_a_gpu_that_is_lost_from_the_start_and_runs_once_it_is_back(
    agent: Agent, libraries: GpuLibraries
) -> None:
    """Scenario 70, ollama#3647."""
    has(agent, libraries, LOST)
    a, one = model("a", backend="auto"), model("one", backend="auto", gpus="1")
    agent.write(manifest(a, one, model("on-cpu", backend="auto", gpus="0")))
    agent.start()
    agent.wait_up()

    for name in ("a", "one"):
        assert "is lost: GPU is lost" in agent.wait_state(name, "blocked")["reason"]
    assert agent.wait_state("on-cpu", "loaded")["backend"] == "llama-server-cpu"
    known = agent.wait_condition("DevicesKnown", "False")
    assert known["reason"] == "GpuLost"
    lost = "a GPU of nvidia (its driver's number 0) is lost: GPU is lost"
    assert (known["message"], amiss(agent)) == (lost, [lost])

    has(agent, libraries, card(1), card(2))
    agent.post("/api/management/reconcile", {})
    held = agent.wait_state("a", "loaded")
    assert (held["backend"], held["gpu_ids"]) == ("llama-server-cuda", ["GPU-1"])
    agent.wait_condition("DevicesKnown", "True")
    assert amiss(agent) == [lost, "nothing is amiss any more"]
    assert agent.stop() == 0


@pytest.mark.slow
def test_after_a_restart_without_a_gpu_the_numbers_of_the_others_mean_the_same(
    agent: Agent, libraries: GpuLibraries
) -> None:
    """Scenarios 64 and 66, gpustack#5784 and #6032."""
    has(agent, libraries, card(1), card(2), card(3))
    second = model("second", backend="auto", gpu_ids="[1]")
    agent.write(manifest(second))
    agent.start()
    agent.wait_up()
    assert agent.wait_state("second", "loaded")["gpu_ids"] == ["GPU-2"]
    assert agent.stop() == 0

    has(agent, libraries, card(2), card(3))
    agent.write(manifest(second, model("first", backend="auto", gpu_ids="[0]")))
    agent.start()
    agent.wait_up()

    assert agent.wait_state("second", "loaded")["gpu_ids"] == ["GPU-2"]
    assert "GPU 0 (GPU-1) is not used: lost" in agent.wait_state("first", "blocked")["reason"]
    known = agent.wait_condition("DevicesKnown", "False")
    assert known["reason"] == "GpuLost"
    assert "until gpus.json is removed from the data folder" in known["message"]
    assert agent.stop() == 0

    (agent.data / "gpus.json").unlink()
    agent.start()
    agent.wait_up()
    assert agent.wait_state("first", "loaded")["gpu_ids"] == ["GPU-2"]
    assert agent.wait_state("second", "loaded")["gpu_ids"] == ["GPU-3"]
    assert agent.stop() == 0
