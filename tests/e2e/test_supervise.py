"""`run --supervise` with real agents: no crash of one costs a model, and nothing lingers."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.supervised import agents_below
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


def with_spare(agent: Agent) -> tuple[int, int]:
    """The agent and its spare, which comes later."""
    assert agent.process is not None
    pid = agent.process.pid
    wait_until(lambda: len(agents_below(pid)) == 2, what="a spare")
    first, second = agents_below(pid)
    return first, second


def serving(agent: Agent, *models: str) -> int:
    """The pid of `a`, once it is loaded."""
    agent.write(manifest(*(models or (model("a"),))))
    agent.start()
    agent.wait_up()
    return int(agent.wait_state("a", "loaded")["pid"])


def crash(agent: Agent, pid: int) -> None:
    """Kill the agent, and wait until another one answers."""
    lives = agent.log.count('"agent started"')
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: agent.log.count('"agent started"') > lives, what=f"a new one\n{agent.recent_log}"
    )
    agent.wait_up()


def test_a_crash_of_the_agent_costs_no_model(supervised: Agent) -> None:
    pid = serving(supervised)
    crash(supervised, pid_of_agent(supervised))
    assert supervised.wait_state("a", "loaded")["pid"] == pid
    assert "SigBlk:\t0000000000000000" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    told = supervised.self_view()["agent"]
    assert told["pid"] == pid_of_agent(supervised)
    assert told["supervision"]["restarts"] == 1
    assert told["supervision"]["crash"].startswith("killed by SIGKILL at 2")
    assert supervised.stop() == 0
    assert supervised.processes() == []


@pytest.mark.slow
def test_a_spare_takes_the_place_of_a_killed_agent(supervised: Agent) -> None:
    pid = serving(supervised)
    agent, spare = with_spare(supervised)
    assert agent == pid_of_agent(supervised)
    crash(supervised, agent)
    assert pid_of_agent(supervised) == spare
    assert supervised.self_view()["agent"]["supervision"]["restarts"] == 1
    assert supervised.wait_state("a", "loaded")["pid"] == pid
    _, second = with_spare(supervised)
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: not is_alive(second), what="it is reaped")
    crash(supervised, spare)
    assert pid_of_agent(supervised) not in (agent, spare, second)
    assert supervised.wait_state("a", "loaded")["pid"] == pid
    assert supervised.stop() == 0
    assert supervised.processes() == []


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_agent_whose_supervisor_is_killed_ends_as_it_was_told(supervised: Agent) -> None:
    pid = serving(supervised)
    agent, spare = with_spare(supervised)
    assert supervised.process is not None
    supervised.process.kill()
    wait_until(lambda: not is_alive(agent), what="the agent has ended")
    wait_until(lambda: not is_alive(spare), what="the spare has ended")
    assert not is_alive(pid)
    assert "the supervisor's end" in supervised.log
    assert supervised.processes() == []


@pytest.mark.slow
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


def children(pid: int) -> list[int]:
    """Zombies included."""
    told = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(child) for child in told.split()]


@pytest.mark.slow
def test_as_process_1_of_a_container_it_keeps_the_models_and_reaps(contained: Agent) -> None:
    pid = serving(contained, model("a", env='{STAND_IN: "--spawn-children 2"}'))
    assert "on-exit leave cannot work" in contained.log
    assert "process 1" in contained.self_view()["agent"]["on_exit_problem"]
    assert contained.process is not None
    (first,) = children(contained.process.pid)
    crash(contained, agents_below(first)[0])
    assert contained.wait_state("a", "loaded")["pid"] == pid
    agents = agents_below(first)
    (backend,) = (each for each in children(first) if each not in agents and children(each))
    os.kill(backend, signal.SIGKILL)
    contained.wait_model("a", lambda entry: entry["state"] == "loaded" and entry["pid"] != pid)
    wait_until(
        lambda: set(children(first)) == set(agents_below(first)), what="only agents are left"
    )
    os.kill(first, signal.SIGTERM)
    assert contained.process.wait(60) == 0
    assert contained.processes() == []
