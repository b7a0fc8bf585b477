"""Every proxy test runs on uvloop, as the agent does, and leaves no process behind."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from tests.proxy.stand_in import StandIn, StartStandIn


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def stand_in() -> Iterator[StartStandIn]:
    """Starts stand-in backends; the flags are theirs."""
    started: list[StandIn] = []

    def start(*flags: str) -> StandIn:
        started.append(StandIn(*flags))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture(scope="module")
def llm() -> Iterator[StandIn]:
    """One well-behaved backend for the tests of a file that only ask it."""
    process = StandIn("--name", "llm")
    yield process
    process.close()


@pytest.fixture(scope="module")
def embedding() -> Iterator[StandIn]:
    process = StandIn("--name", "emb", "--type", "embedding")
    yield process
    process.close()
