"""The GPUs of a node change: what was blocked or refused for them is judged anew (R7)."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import Agent, Entry, llama_server_stand_in
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.observe.gpu_libraries import GpuLibraries, records
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

GIB = 2**30
DIES = '{STAND_IN: "--exit-after 0 --exit-code 3"}'


class Node:
    """An agent on a machine whose NVML says what it is told to say."""

    def __init__(self, agent: Agent, libraries: GpuLibraries, **first: Any) -> None:
        self.agent = agent
        self._libraries = libraries
        agent.model_file()
        llama_server_stand_in(agent.root, "  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80 MiB free)")
        agent.environment |= self._describe(**first)

    def _describe(self, *, cards: int = 2, lost: bool = False, **library: Any) -> dict[str, str]:
        gpus: list[dict[str, object]] = [
            {"uuid": f"GPU-{at}", "pci": f"0000:0{at}:00.0", "total": 80 * GIB, "used": 0}
            for at in range(cards)
        ]
        if lost:
            gpus[1] = {"error": 15}
        text = records("sys", library) + records("gpu", *gpus)
        return self._libraries.machine(self.agent.root, nvidia=text)

    def becomes(self, **what: Any) -> None:
        """What NVML says from now on; an operator has the agent ask."""
        self._describe(**what)
        self.agent.post("/api/management/reconcile", {}).raise_for_status()

    def forgiven(self) -> list[Entry]:
        return self._events("FailureForgiven")

    def _events(self, kind: str) -> list[Entry]:
        events = self.agent.client.get(f"{self.agent.url}/api/management/events").json()["events"]
        return [event for event in events if event["kind"] == kind]

    def wait_forgiven(self, count: int) -> Entry:
        wait_until(lambda: len(self.forgiven()) == count, what=f"pardons\n{self.agent.recent_log}")
        return self.forgiven()[-1]

    def wait_crash_loops(self, count: int) -> None:
        """A state alone may be the one from before a pardon."""
        loops = "CrashLoop"
        wait_until(lambda: len(self._events(loops)) == count, what=f"{count} of {loops}")


def on_gpu(name: str, **fields: str) -> str:
    return model(name, backend="auto", **fields)


def test_gpus_that_come_back_or_get_another_driver_lift_the_blocks_of_what_ran_on_them(
    make_agent: MakeAgent, libraries: GpuLibraries
) -> None:
    """Scenario 8, llama-swap#92: a failure is never final."""
    agent = make_agent()
    node = Node(agent, libraries)
    agent.write(manifest(on_gpu("bad", gpus="1", env=DIES), on_gpu("cpu", gpus="0", env=DIES)))
    agent.start()
    agent.wait_up()
    for name in ("bad", "cpu"):
        assert "exited with code 3" in agent.wait_state(name, "blocked")["reason"]

    node.becomes(lost=True)
    agent.wait_condition("DevicesKnown", "False")
    assert node.forgiven() == []
    node.becomes()

    event = node.wait_forgiven(1)
    assert event["model"] == "bad"
    assert event["reason"].startswith("GPU 1 (GPU-1) can be used now; it had failed: exited")
    node.wait_crash_loops(3)
    node.becomes(driver="590.10")
    assert "GPUs have driver 590.10 (nvml) now" in node.wait_forgiven(2)["reason"]
    assert agent.model("cpu")["state"] == "blocked"  # type: ignore[index]
    assert agent.stop() == 0


@pytest.mark.parametrize(("code", "said"), [(18, "version mismatch"), (999, "cannot tell")])
def test_a_driver_that_is_mended_lets_models_start_that_were_refused_for_it(
    make_agent: MakeAgent, libraries: GpuLibraries, code: int, said: str
) -> None:
    """Scenario 70, ollama#3647: they had not fallen to the CPU."""
    agent = make_agent()
    node = Node(agent, libraries, nvmlInitWithFlags=code)
    agent.write(manifest(on_gpu("any"), on_gpu("pair", gpu_ids="[0, 1]")))
    agent.start()
    agent.wait_up()
    assert said in agent.wait_state("any", "blocked")["reason"]
    agent.wait_state("pair", "blocked")

    node.becomes()

    assert agent.wait_state("pair", "loaded")["gpu_ids"] == ["GPU-0", "GPU-1"]
    agent.write(manifest(on_gpu("any")))
    assert agent.wait_state("any", "loaded")["backend"] == "llama-server-cuda"
    assert agent.stop() == 0


def test_a_gpu_that_is_plugged_in_is_found_by_whoever_asks(
    make_agent: MakeAgent, libraries: GpuLibraries, tmp_path: Path
) -> None:
    agent = make_agent()
    node = Node(agent, libraries, cards=0)
    agent.write(manifest(on_gpu("on-cpu", gpus="0"), on_gpu("waits", gpus="1")))
    agent.start()
    agent.wait_up()
    assert "has none that can be used" in agent.wait_state("waits", "blocked")["reason"]
    before = agent.wait_state("on-cpu", "loaded")["pid"]

    node.becomes(cards=1)

    assert agent.wait_state("waits", "loaded")["gpu_ids"] == ["GPU-0"]
    assert agent.wait_state("on-cpu", "loaded")["pid"] == before
    assert agent.stop() == 0
