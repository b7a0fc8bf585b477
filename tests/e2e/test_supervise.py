"""`run --supervise` with real agents: no crash of one costs a model, and nothing lingers."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.agent import Agent, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until


@pytest.fixture
def supervised(make_agent: MakeAgent) -> Agent:
    """`process` is the supervisor."""
    agent = make_agent("--supervise")
    agent.model_file()
    return agent


def pid_of_agent(agent: Agent) -> int:
    """As it tells it itself; 0 while none answers."""
    try:
        told = json.loads((agent.data / "agent.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return int(told["pid"])


def serving(agent: Agent, *models: str) -> int:
    """The pid of `a`, once it is loaded."""
    agent.write(manifest(*(models or (model("a"),))))
    agent.start()
    agent.wait_up()
    return int(agent.wait_state("a", "loaded")["pid"])


def test_an_agent_that_is_killed_while_it_ends_leaves_no_backend(supervised: Agent) -> None:
    deaf = '{STAND_IN: "--ignore-sigterm"}'
    pid = serving(supervised, model("a", env=deaf, timeouts="{stop: 2s, kill: 10s}"))
    assert supervised.process is not None
    supervised.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "agent ending" in supervised.log, what="ending")
    os.kill(pid_of_agent(supervised), signal.SIGKILL)
    assert supervised.process.wait(60) == 0
    assert not is_alive(pid)
    assert supervised.processes() == []


def test_an_agent_whose_supervisor_is_killed_ends_as_it_was_told(supervised: Agent) -> None:
    pid = serving(supervised)
    agent = pid_of_agent(supervised)
    assert supervised.process is not None
    supervised.process.kill()
    wait_until(lambda: not is_alive(agent), what="the agent has ended")
    assert not is_alive(pid)
    assert "the supervisor's end" in supervised.log
    assert supervised.processes() == []


def test_what_the_agent_cannot_start_with_ends_the_whole(
    supervised: Agent, make_agent: MakeAgent
) -> None:
    serving(supervised)
    second = make_agent("--supervise", "--data-dir", str(supervised.data), name="b")
    second.start()
    assert second.process is not None
    assert second.process.wait(60) == 1
    assert second.log.count("another agent") == 1


@pytest.fixture
def contained(make_agent: MakeAgent) -> Iterator[Agent]:
    """As process 1 of a pid namespace; `process` is `unshare`, whose death ends all of it."""
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        inside += ["--user", "--map-root-user"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*inside, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no pid namespace of our own")
    agent = make_agent("--supervise", "--on-exit", "leave")
    agent.model_file()
    agent.wrapper = inside
    yield agent
    if agent.process is not None:
        agent.process.kill()


def test_what_cannot_be_left_is_said_at_the_start(contained: Agent) -> None:
    """Process 1 takes all others of its namespace along, whatever the agent does."""
    serving(contained)
    assert "on-exit leave cannot work" in contained.log
    assert "process 1" in contained.self_view()["agent"]["on_exit_problem"]
