"""Models on GPUs that a library describes: an agent, its surveys, and what it gives to whom."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.agent import Agent, llama_server_stand_in
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.observe.gpu_libraries import GpuLibraries, records

GIB = 2**30
LISTING = "  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80456 MiB free)"


class Machine:
    """Four GPUs, which NVML counts the other way round; what it tells may change."""

    def __init__(self, agent: Agent, libraries: GpuLibraries) -> None:
        self.agent = agent
        self._others = 0
        self._libraries = libraries
        self.tells()
        llama_server_stand_in(agent.root, LISTING)
        agent.environment |= self._libraries.machine(agent.root, nvidia=self._gpus())
        agent.environment["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"

    def tells(self, *processes: dict[str, object], lost: int | None = None) -> None:
        self._lost, self._processes = lost, processes

    def _gpus(self) -> str:
        cards: list[dict[str, object]] = [
            {"uuid": f"GPU-{at}", "pci": f"0000:0{at}:00.0", "total": 80 * GIB, "used": at * GIB}
            | {"util": 10 * at}
            for at in (3, 2, 1, 0)
        ]
        if self._lost is not None:
            cards[3 - self._lost] = {"error": 15}
        return records("gpu", *cards) + records("process", *self._processes)

    def now_tells(self, *models: str, **what: Any) -> None:
        """Change what NVML tells, and let a process come, after which it is asked."""
        self.tells(*what.pop("processes", ()), **what)
        self._libraries.machine(self.agent.root, nvidia=self._gpus())
        self._others += 1
        other = model(f"other-{self._others}", gpus="0")
        self.agent.write(manifest(*models, other))


def on_gpu(name: str, **fields: str) -> str:
    return model(name, backend="auto", **fields)


def environment(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
    return dict(line.split("=", 1) for line in text.split("\0") if line)


def argv(agent: Agent, name: str) -> list[str]:
    answer = agent.client.get(f"{agent.url}/api/management/models/{name}").json()
    words: list[str] = answer["argv"]
    return words


def says(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda entry: text in entry["reason"]


@pytest.mark.slow
def test_models_get_gpus_keep_them_and_lose_none_to_each_other(
    make_agent: MakeAgent, libraries: GpuLibraries
) -> None:
    """Scenarios 64 to 66, gpustack#5784, #1633, #6032: NVML counts the other way round."""
    agent = make_agent("--stop-limit", "none")
    agent.model_file()
    machine = Machine(agent, libraries)
    first = on_gpu("first", gpu_ids="[3]")
    by_address = on_gpu("by-address", gpu_ids='["00000000:02:00.0"]')
    agent.write(manifest(first, by_address, on_gpu("pair", gpus="2")))
    agent.start()
    agent.wait_up()

    held = {name: agent.wait_state(name, "loaded") for name in ("first", "by-address", "pair")}

    assert {name: entry["gpu_ids"] for name, entry in held.items()} == {
        "first": ["GPU-3"],
        "by-address": ["GPU-2"],
        "pair": ["GPU-0", "GPU-1"],
    }
    assert {entry["backend"] for entry in held.values()} == {"llama-server-cuda"}
    shown = environment(held["pair"]["pid"])
    assert shown["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert shown["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "HIP_VISIBLE_DEVICES" not in shown
    assert argv(agent, "pair")[-2:] == ["--n-gpu-layers", "999"]
    gpu = agent.self_view()["gpu"]
    assert (gpu["type"], gpu["count"]) == ("nvidia", 4)
    assert [device["uuid"] for device in gpu["devices"]] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert gpu["devices"][3]["memory_free_bytes"] == 77 * GIB
    page = agent.client.get(f"{agent.url}/metrics").text
    assert 'xgen_gpu_memory_bytes{gpu="GPU-3",kind="used"} 3.221225472e+09' in page
    assert 'xgen_gpu_utilization_ratio{gpu="GPU-3"} 0.3' in page
    shown_status = xgen_model("status", "--server", agent.url).stdout
    assert "4 GPUs (nvidia), 314.0 GiB of 320.0 GiB free" in " ".join(shown_status.split())

    candidate = agent.root / "candidate.yaml"
    candidate.write_text(
        manifest(first, on_gpu("pair", gpus="3"), on_gpu("late", gpu_ids="[7]")), encoding="utf-8"
    )
    planned = xgen_model("plan", "--manifest", candidate, "--server", agent.url, "--output", "json")
    verbs = {
        each["model"]: (each["action"], each["reason"])
        for each in plan_of(planned.stdout)["nodes"][0]["models"]
    }
    assert verbs["first"][0] == "unchanged"
    assert verbs["pair"][0] == "restart"
    assert verbs["late"][0] == "refused"
    assert "there is no GPU 7; this node has 0: GPU-0" in verbs["late"][1]

    # A change keeps the GPUs of a count; rivals are told who has what they want.
    changed = on_gpu("pair", gpus="2", env="{STAND_IN: '--chunks 2'}")
    shared = [
        on_gpu(name, gpu_ids="[2]", gpu_memory=share)
        for name, share in (("half", "0.5"), ("size", "30GiB"))
    ]
    agent.write(
        manifest(
            first,
            changed,
            *shared,
            on_gpu("rival", gpu_ids="[GPU-3]"),
            on_gpu("nowhere", gpu_ids="[9]"),
            on_gpu("three", gpus="3"),
            on_gpu("too-much", gpu_ids="[2]", gpu_memory="0.2"),
            on_gpu("on-cpu", gpus="0"),
            model("wrong", backend="vllm-cpu"),
        )
    )
    old = held["pair"]
    pair = agent.wait_model("pair", lambda e: e["state"] == "loaded" and e["pid"] != old["pid"])
    assert pair["gpu_ids"] == ["GPU-0", "GPU-1"]
    assert {
        name: agent.wait_state(name, "loaded")["gpu_ids"] for name in ("first", "half", "size")
    } == {"first": ["GPU-3"], "half": ["GPU-2"], "size": ["GPU-2"]}
    assert agent.wait_state("first", "loaded")["pid"] == held["first"]["pid"]
    refused = {
        "rival": "GPU GPU-3 is claimed by first too, which holds it",
        "nowhere": "there is no GPU 9; this node has 0: GPU-0 at 0000:00:00.0, NVIDIA H100",
        "three": "cannot give it 3 GPUs: 0 of 4 have room; claimed are GPU 0 (GPU-0) by pair",
        "too-much": "GPU GPU-2 has no room for 20% beside 50% of half and 38% of size",
        "wrong": "it does not run gguf files",
    }
    for name, reason in refused.items():
        assert reason in agent.wait_state(name, "blocked")["reason"]
    on_cpu = agent.wait_state("on-cpu", "loaded")
    assert (on_cpu["backend"], on_cpu["gpu_ids"]) == ("llama-server-cpu", [])
    assert environment(on_cpu["pid"])["CUDA_VISIBLE_DEVICES"] == "-1"

    # A process that is found on a GPU that it was not given ends, and is started anew.
    wrong = {"on": "GPU-0", "pid": held["first"]["pid"]}
    machine.now_tells(first, changed, processes=[wrong])
    failed = agent.wait_model("first", says("is on GPU 0 (GPU-0), and was given GPU 3 (GPU-3)"))
    assert failed["state"] in ("unloading", "error")
    again = agent.wait_model("first", lambda e: e["state"] == "loaded" and e["pid"] != wrong["pid"])
    assert again["gpu_ids"] == ["GPU-3"]

    # A GPU that is lost is told, and nothing that runs is touched, nor meant by another number.
    late = on_gpu("late", gpu_ids="[1]")
    machine.now_tells(first, changed, late, on_gpu("third", gpu_ids="[2]"), lost=1)
    assert agent.wait_condition("DevicesKnown", "False")["reason"] == "GpuLost"
    assert "GPU 1 (GPU-1) is not used: lost" in agent.wait_model("late", says("lost"))["reason"]
    assert agent.wait_state("third", "loaded")["gpu_ids"] == ["GPU-2"]
    assert agent.wait_state("pair", "loaded")["pid"] == pair["pid"]
    problems = [bool(device["problem"]) for device in agent.self_view()["gpu"]["devices"]]
    assert problems == [False, True, False, False]
    machine.now_tells(first, changed)
    agent.wait_condition("DevicesKnown", "True")
    assert agent.stop() == 0


def test_gpus_of_amd_are_given_by_the_numbers_that_hip_knows(
    make_agent: MakeAgent, libraries: GpuLibraries
) -> None:
    """Scenario 67, pytorch#160468: amdsmi counts in another order than HIP."""
    agent = make_agent()
    agent.model_file()
    llama_server_stand_in(agent.root, "  ROCm0: AMD Instinct MI300X (196592 MiB, 196000 MiB free)")
    cards = [
        {"uuid": f"GPU-a{at}", "pci": f"0000:0{at}:00.0", "gfx": "0x942", "total": 192 * GIB}
        | {"used": GIB, "hip": hip}
        for at, hip in ((1, 5), (2, 3), (3, 4))
    ]
    agent.environment |= libraries.machine(agent.root, amd=records("gpu", *cards))
    agent.write(
        manifest(
            on_gpu("first", gpu_ids="[0]"),
            on_gpu("pair", gpus="2"),
            on_gpu("tensors", format="safetensors", gpu_ids="[1]", gpu_memory="0.1"),
            model("by-name", backend="llama-server-cuda", gpus="1"),
        )
    )
    agent.start()
    agent.wait_up()

    first, pair = agent.wait_state("first", "loaded"), agent.wait_state("pair", "loaded")

    assert (first["gpu_ids"], first["backend"]) == (["GPU-a1"], "llama-server-rocm")
    assert environment(first["pid"])["HIP_VISIBLE_DEVICES"] == "5"
    assert pair["gpu_ids"] == ["GPU-a2", "GPU-a3"]
    assert environment(pair["pid"])["HIP_VISIBLE_DEVICES"] == "3,4"
    assert "CUDA_VISIBLE_DEVICES" not in environment(pair["pid"])
    assert "cannot give it 1 GPU of nvidia" in agent.wait_state("by-name", "blocked")["reason"]
    assert "vllm-rocm: no vllm" in agent.wait_state("tensors", "blocked")["reason"]
    assert agent.stop() == 0


@pytest.mark.slow
def test_of_a_device_plugins_gpus_models_count_and_name_none(
    make_agent: MakeAgent, libraries: GpuLibraries
) -> None:
    """The runtime shows all four (a privileged container); two of them were given."""
    agent = make_agent()
    agent.model_file()
    Machine(agent, libraries)
    del agent.environment["CUDA_VISIBLE_DEVICES"]
    agent.environment |= {
        "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-3",
        "XGEN_GPU_MODE": "plugin",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    pair, named = on_gpu("pair", gpus="2"), on_gpu("named", gpu_ids="[0]")
    agent.write(manifest(pair, named, on_gpu("three", gpus="3")))
    agent.start()
    agent.wait_up()

    held = agent.wait_state("pair", "loaded")

    assert held["gpu_ids"] == ["GPU-1", "GPU-3"]
    shown = environment(held["pid"])
    assert shown["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-3"
    assert "NVIDIA_VISIBLE_DEVICES" not in shown
    assert "write gpus: N" in agent.wait_state("named", "blocked")["reason"]
    assert "cannot give it 3 GPUs" in agent.wait_state("three", "blocked")["reason"]
    gpu = agent.self_view()["gpu"]
    assert (gpu["mode"], gpu["count"], [each["uuid"] for each in gpu["devices"]]) == (
        "plugin",
        2,
        ["GPU-1", "GPU-3"],
    )
    said = " ".join(xgen_model("status", "--server", agent.url).stdout.split())
    assert "2 GPUs from a device plugin (nvidia)" in said
    candidate = agent.root / "candidate.yaml"
    candidate.write_text(manifest(pair, on_gpu("late", gpu_ids="[1]")), encoding="utf-8")
    planned = xgen_model("plan", "--manifest", candidate, "--server", agent.url).stdout
    assert "write gpus: N" in " ".join(planned.split())
    assert agent.stop() == 0
