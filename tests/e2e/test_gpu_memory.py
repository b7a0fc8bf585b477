"""Models and the memory of GPUs that a library describes: who fits, who waits, who is refused."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.observe.processes import HOST_PID_NAMESPACE, pid_namespace
from tests.cli.command import xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.agent import Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.gpu_machine import GIB, KEYS, PREFIX, Machine, card, large, says
from tests.e2e.manifests import manifest, model
from tests.gguf_file import header
from tests.observe.gpu_libraries import GpuLibraries
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def stranger() -> Iterator[int]:
    """The pid of a process that is no model's."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_the_next_start_waits_for_memory_and_then_says_who_holds_it(
    make_agent: MakeAgent, libraries: GpuLibraries, stranger: int, vendor: str
) -> None:
    """Scenarios 18, 19 (LLMKube#516, gpustack#1354)."""
    machine = Machine(make_agent(), libraries, vendor)
    machine.holds(1)
    agent = machine.runs(large("a", 64))
    pid = agent.wait_state("a", "loaded")["pid"]

    # A restart counts on what its own process holds.
    machine.holds(70, a=(pid, 69))
    agent.write(manifest(large("a", 64, env="{STAND_IN: '--chunks 2'}")))
    late = agent.wait_model("a", says("may not be back yet", state="pending"))["reason"]
    assert f"pid {pid} (which has ended) holds 69.0 GiB; what a (pid {pid}) held" in late
    machine.holds(1)
    again = agent.wait_model("a", lambda e: e["state"] == "loaded" and e["pid"] != pid)["pid"]

    # What is not back in time is somebody's.
    machine.holds(70, other=(stranger, 69))
    agent.write(manifest(large("b", 64)))
    waits = agent.wait_model("b", says("may not be back yet", state="pending"))
    assert f"a (pid {again}) held may not be back yet" in waits["reason"]
    refused = agent.wait_state("b", "blocked")["reason"]
    assert refused.startswith("cannot start: it needs 64.8 GiB of memory (weights 0 MiB, KV cache")
    assert "on GPU 0 (GPU-0); 10.0 GiB of 80.0 GiB are free" in refused
    assert f"pid {stranger} (sleep, no model of ours) holds 69.0 GiB" in refused

    machine.holds(1)
    assert agent.wait_state("b", "loaded")["gpu_ids"] == ["GPU-0"]
    assert agent.stop() == 0


def test_two_that_do_not_fit_together_are_not_both_started(
    make_agent: MakeAgent, libraries: GpuLibraries
) -> None:
    """Scenario 16 (gpustack#5933, #5513)."""
    machine = Machine(make_agent(), libraries)
    machine.holds(1)
    share = {"gpu_memory": "0.5"}
    agent = machine.runs(large("a", 64, **share))
    pid = agent.wait_state("a", "loaded")["pid"]
    machine.holds(66, a=(pid, 65))
    told = xgen_model(
        "gpus", "--data-dir", agent.data, "--output", "json", env=agent.environment
    ).stdout
    (process,) = json.loads(told)["gpus"][0]["processes"]
    seen = pid_namespace() == HOST_PID_NAMESPACE
    assert process["model"] == ("a" if seen else None)

    agent.write(manifest(large("a", 64, **share), large("b", 32, **share)))

    refused = agent.wait_state("b", "blocked")["reason"]
    assert "on GPU 0 (GPU-0); 14.0 GiB of 80.0 GiB are free; a holds 65.0 GiB; make" in refused
    told = agent.client.get(f"{agent.url}/api/management/models/b").json()
    on_gpu = told["memory_on_gpus"]["GPU-0"]
    assert (on_gpu["kv_cache_bytes"], on_gpu["complete"]) == (32 * GIB, True)
    assert told["memory"]["kv_cache_bytes"] == 0
    shown = xgen_model("plan", "--server", agent.url, "--output", "json")
    planned = {each["model"]: each for each in plan_of(shown.stdout)["nodes"][0]["models"]}
    assert planned["b"]["action"] == "refused"
    assert planned["b"]["memory_on_gpus"]["GPU-0"]["kv_cache_bytes"] == 32 * GIB

    candidate = agent.root / "candidate.yaml"
    candidate.write_text(manifest(large("a", 40, **share), large("b", 32, **share)))
    text = xgen_model("plan", "--manifest", candidate, "--server", agent.url).stdout
    said = " ".join(text.split())
    assert "40,960 MiB" not in said
    assert "needs 40.6 GiB of memory (weights 0 MiB, KV cache 40.0 GiB for 327,680 tokens" in said
    assert "on GPU 0 (GPU-0), which has 80.0 GiB" in said
    assert "GPU 0 (GPU-0): 66.0 GiB of 80.0 GiB used, 74.1 GiB then" in said

    skip = {"skip_memory_check": "true"}
    agent.write(manifest(large("a", 64, **share), large("b", 32, **share, **skip)))
    agent.wait_state("b", "loaded")
    assert agent.wait_state("a", "loaded")["pid"] == pid
    assert agent.stop() == 0


def test_nothing_is_stopped_for_a_successor_by_a_survey_from_before_it_was_wanted(
    make_agent: MakeAgent, libraries: GpuLibraries, stranger: int
) -> None:
    machine = Machine(make_agent(), libraries)
    machine.holds(1)
    agent = machine.runs(large("a", 4))
    pid = agent.wait_state("a", "loaded")["pid"]
    machine.holds(2, a=(pid, 1))
    agent.post("/api/management/reconcile", {}).raise_for_status()
    wait_until(lambda: machine.free_bytes() == [78 * GIB], what="a survey")

    machine.holds(76, a=(pid, 1), other=(stranger, 75))
    agent.write(manifest(large("a", 20)))

    entry = agent.wait_model("a", lambda e: (e["target"] or {}).get("state") == "blocked")
    assert (entry["state"], entry["pid"]) == ("loaded", pid)
    assert f"pid {stranger} (sleep, no model of ours) holds 75.0 GiB" in entry["target"]["reason"]
    assert agent.stop() == 0


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_a_driver_that_falls_silent_lets_nothing_start_that_its_gpu_cannot_hold(
    agent: Agent, libraries: GpuLibraries, vendor: str
) -> None:
    machine = Machine(agent, libraries, vendor)
    machine.holds(1)
    machine.runs(large("a", 96))
    assert "has 80.0 GiB in all" in agent.wait_state("a", "blocked")["reason"]

    machine.falls_silent()
    agent.post("/api/management/reconcile", {}).raise_for_status()
    agent.wait_condition("DevicesKnown", "False")
    agent.write(manifest(large("a", 96), model("cpu")))

    agent.wait_state("cpu", "loaded")
    assert "has 80.0 GiB in all" in agent.wait_state("a", "blocked")["reason"]
    assert agent.stop() == 0


def test_what_a_node_can_never_hold_is_not_fetched(
    make_agent: MakeAgent, libraries: GpuLibraries, tmp_path: Path
) -> None:
    """Told by the hub's catalog, and judged anew when the manifest says so."""
    agent = make_agent()
    machine = Machine(agent, libraries)
    machine.holds(1)
    pushed = xgen_model("hub", "push", str(agent.hub / PREFIX), PREFIX, "--hub", str(agent.hub))
    assert pushed.returncode == 0, pushed.stderr
    machine.runs(large("a", 96))

    refused = agent.wait_state("a", "blocked")["reason"]

    assert refused.startswith("not fetched: it needs 96.9 GiB of memory (weights 0 MiB, KV cache")
    assert "on GPU 0 (GPU-0), which has 80.0 GiB in all; ask for a smaller context" in refused
    assert not list((agent.data / "models").glob("**/*.gguf"))
    told = agent.client.get(f"{agent.url}/api/management/models/a").json()
    assert told["download_bytes"] == len(header(KEYS))
    agent.write(manifest(large("a", 96, skip_memory_check="true")))
    agent.wait_state("a", "loaded")
    assert agent.stop() == 0


def test_an_instance_is_as_large_as_it_is_and_shared_memory_is_the_host_s(
    make_agent: MakeAgent, libraries: GpuLibraries
) -> None:
    """A MIG instance, and a GPU that works in the machine's memory (GB10)."""
    machine = Machine(make_agent(), libraries)
    instance = {"kind": "mig", "of": "GPU-0", "slot": 0, "total": 20 * GIB, "used": GIB}
    machine.tells(
        card(mig=1),
        {**instance, "uuid": "MIG-0"},
        {**instance, "uuid": "MIG-1", "slot": 1},
        card(uuid="GPU-1", pci="0000:02:00.0", nvmlDeviceGetMemoryInfo=3),
        processes=[],
    )
    agent = machine.runs(
        large("fits", 16, gpu_ids="[MIG-0]"),
        large("too-large", 24, gpu_ids="[MIG-1]"),
        large("beyond", 1 << 20, gpu_ids="[GPU-1]"),
    )

    too_large = agent.wait_state("too-large", "blocked")["reason"]
    beyond = agent.wait_state("beyond", "blocked")["reason"]

    assert "on GPU 1 (MIG-1), which has 20.0 GiB in all" in too_large
    in_all = r"KV cache 1048576.0 GiB .* on this node, which has \d+\.\d GiB in all"
    assert re.search(in_all, beyond)
    agent.wait_state("fits", "loaded")
    told = agent.client.get(f"{agent.url}/api/management/models/beyond").json()
    assert (told["memory_on_gpus"], told["memory"]["kv_cache_bytes"]) == ({}, GIB << 20)
    assert agent.stop() == 0
