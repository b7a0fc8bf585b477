"""Agents for the end-to-end tests; each test proves that nothing of its agent is left."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.e2e.agent import Agent, llama_server_stand_in
from tests.e2e.clients import start_for_clients
from tests.traces import remove_traces

MakeAgent = Callable[..., Agent]


@contextmanager
def agents(folder: Path) -> Iterator[MakeAgent]:
    """Makes agents with `llama-server` played by the stand-in, unless `real=True`."""
    made: list[Agent] = []

    def make(*args: str, real: bool = False, name: str = "a") -> Agent:
        root = folder / name
        root.mkdir(exist_ok=True)
        engine = [] if real else ["--llama-server", str(llama_server_stand_in(root))]
        made.append(Agent(root=root, args=[*engine, *args]))
        return made[-1]

    try:
        yield make
    finally:
        end_agents(made)


def end_agents(made: Sequence[Agent]) -> None:
    """All of them, and nothing of theirs is left."""
    for agent in made:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGTERM):
            if agent.process is not None and agent.exited is None:
                agent.process.send_signal(number)
        if agent.process is not None:
            agent.process.wait(30)
        agent.client.close()
    for agent in made:
        left = agent.processes()
        for pid in left:
            agent.end_stranger(pid)
        remove_traces(agent.data)
        assert not left, f"left behind: {left}\n{agent.log}"


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    with agents(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_lasting_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeAgent]:
    """For agents that all tests of a module ask, and none changes."""
    with agents(tmp_path_factory.mktemp("agents")) as make:
        yield make


def with_loaded(agent: Agent, text: str, names: Sequence[str], seconds: float) -> Agent:
    """A lasting agent, started with the manifest where it is not up; these are loaded."""
    if agent.process is None or agent.exited is not None:
        agent.write(text)
        agent.start()
        agent.wait_up()
    for name in names:
        agent.wait_state(name, "loaded", seconds=seconds)
    return agent


@pytest.fixture
def client(node: Agent) -> Iterator[openai.OpenAI]:
    """OpenAI's, for the module's own `node`."""
    with openai.OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def for_clients(make_lasting_agent: MakeAgent) -> Agent:
    """An agent with the models of tests/e2e/clients.py, as the SDKs ask it."""
    agent = make_lasting_agent()
    agent.model_file()
    start_for_clients(agent)
    return agent


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """One agent on node-a with a hub that holds gguf/test_model; not started yet."""
    made = make_agent()
    made.model_file()
    return made
