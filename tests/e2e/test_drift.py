"""What somebody does to a node behind the agent's back: it is told, mended, and told to be over."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.gpu_machine import Machine, large
from tests.e2e.manifests import manifest, model
from tests.e2e.test_gpu_memory import stranger
from tests.e2e.test_operators import events
from tests.observe.gpu_libraries import GpuLibraries
from tests.waiting import wait_until

__all__ = ["stranger"]

pytestmark = pytest.mark.slow


def told(agent: Agent, kind: str, drift: str) -> list[Entry]:
    of_it = [each for each in events(agent) if each["data"].get("drift") == drift]
    return [each for each in of_it if each["kind"] == kind]


def wait_over(agent: Agent, drift: str) -> Entry:
    """Found once, and over; how it was found."""
    wait_until(lambda: told(agent, "DriftEnded", drift) != [], what=f"{drift} is over")
    (found,) = told(agent, "DriftFound", drift)
    return found


def test_what_is_killed_and_what_is_spoilt_is_told_and_mended(agent: Agent) -> None:
    agent.model_file().write_bytes(agent.model_file().read_bytes() + b"good")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    pid = agent.wait_state("a", "loaded")["pid"]

    os.kill(pid, signal.SIGKILL)
    found = wait_over(agent, "ProcessEnded")
    assert found["reason"].startswith(f"pid {pid}: killed by SIGKILL ")
    assert found["model"] == "a"
    again = agent.wait_state("a", "loaded")
    assert (again["pid"] != pid, again["drift"]) == (True, [])

    (path,) = agent.data.glob("models/.rev/gguf/test_model/*/model.gguf")
    path.unlink()
    agent.post("/api/management/reconcile", {}).raise_for_status()
    found = wait_over(agent, "FilesChanged")
    assert found["model"] == "a"
    wait_until(path.exists, what="the file is there again")


def test_what_nobody_can_tell_of_comes_again_and_no_restart_is_claimed(agent: Agent) -> None:
    """A hub without a catalog: of its file only the size is known."""
    content = agent.model_file().read_bytes() + b"good"
    agent.model_file().write_bytes(content)
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    pid = agent.wait_state("a", "loaded")["pid"]
    (path,) = agent.data.glob("models/.rev/gguf/test_model/*/model.gguf")

    with path.open("r+b") as file:
        file.seek(len(content) - 2)
        file.write(b"XX")
    agent.post("/api/management/reconcile", {}).raise_for_status()

    wait_over(agent, "FilesChanged")
    assert path.read_bytes() == content
    (doubted,) = [each for each in events(agent) if each["kind"] == "FileDoubted"]
    assert doubted["model"] == "a"
    assert doubted["reason"].endswith("; it is fetched again, for a")
    (ended,) = told(agent, "DriftEnded", "FilesChanged")
    served = agent.wait_state("a", "loaded")["pid"]
    how = f"pid {pid} has served on" if served == pid else f"it serves again (pid {served})"
    assert how in ended["reason"]


def test_a_stranger_on_a_gpu_is_named_and_left_alone(
    make_agent: MakeAgent, libraries: GpuLibraries, stranger: int, tmp_path: Path
) -> None:
    machine = Machine(make_agent(), libraries)
    machine.holds(1)
    agent = machine.runs(large("a", 4))
    pid = agent.wait_state("a", "loaded")["pid"]
    machine.holds(14, a=(pid, 2), other=(stranger, 12))
    agent.post("/api/management/reconcile", {}).raise_for_status()

    wait_until(lambda: agent.self_view()["drift"] != [], what="the stranger is told")
    (drift,) = agent.self_view()["drift"]
    what = f"pid {stranger} (sleep) holds 12.0 GiB on GPU 0 (GPU-0), and is no model of this agent"
    assert (drift["kind"], drift["what"]) == ("GpuStranger", what)
    assert (drift["pid"], drift["size_bytes"]) == (stranger, 12 << 30)
    shown = " ".join(xgen_model("status", "--data-dir", str(agent.data)).stdout.split())
    assert f"{what}; nothing is killed" in shown
    ready = agent.condition("Ready")
    assert ready is not None
    assert ready["status"] == "True"

    machine.holds(2, a=(pid, 2))
    agent.post("/api/management/reconcile", {}).raise_for_status()
    wait_over(agent, "GpuStranger")
    assert agent.self_view()["drift"] == []
    assert is_alive(stranger)
    assert agent.wait_state("a", "loaded")["pid"] == pid
