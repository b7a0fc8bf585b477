"""Agents for the end-to-end tests; each test proves that nothing of its agent is left."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, llama_server_stand_in

MakeAgent = Callable[..., Agent]


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    """Makes agents with `llama-server` played by the stand-in, unless `real=True`."""
    agents: list[Agent] = []

    def make(*args: str, real: bool = False, name: str = "a") -> Agent:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        engine = [] if real else ["--llama-server", str(llama_server_stand_in(root))]
        agent = Agent(root=root, args=[*engine, *args])
        agents.append(agent)
        return agent

    yield make
    for agent in agents:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGTERM):
            if agent.process is not None and agent.exited is None:
                agent.process.send_signal(number)
        if agent.process is not None:
            agent.process.wait(30)
        agent.client.close()
    for agent in agents:
        left = agent.processes()
        for pid in left:
            agent.end_stranger(pid)
        assert not left, f"left behind: {left}\n{agent.log}"


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """One agent on node-a with a hub that holds gguf/test_model; not started yet."""
    made = make_agent()
    made.model_file()
    return made
