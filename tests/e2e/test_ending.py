"""How an agent ends (R10): requests may finish, nothing is left, an operator can hurry it."""

import signal
import socket

import httpx
import pytest

from tests.e2e.agent import Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.e2e.streams import stream_in_flight
from tests.waiting import wait_until


def loaded(agent: Agent, *models: str) -> Agent:
    agent.write(manifest(*models))
    agent.start()
    agent.wait_up()
    for entry in agent.self_view()["models"]:
        agent.wait_state(entry["name"], "loaded")
    wait_until(lambda: len(agent.self_view()["models"]) == len(models), what="all models seen")
    for entry in agent.self_view()["models"]:
        agent.wait_state(entry["name"], "loaded")
    return agent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_everything(agent: Agent, number: signal.Signals) -> None:
    loaded(agent, model("a"), model("b"))
    assert len(agent.processes()) >= 2
    assert agent.stop(number) == 0
    assert agent.processes() == []


def test_a_stream_in_flight_may_finish_while_new_requests_are_refused(agent: Agent) -> None:
    slow = '{STAND_IN: "--probe-well --chunks 20 --chunk-interval 0.1"}'
    loaded(agent, model("a", env=slow))
    with stream_in_flight(agent) as lines:
        assert agent.process is not None
        agent.process.send_signal(signal.SIGTERM)
        wait_until(lambda: _status(agent) == 503, what="new requests are refused")
    assert any("[DONE]" in line for line in lines), lines
    assert agent.process.wait(30) == 0


def test_the_status_goes_on_telling_the_truth_while_the_agent_ends(agent: Agent) -> None:
    slow = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'
    loaded(agent, model("a", env=slow), model("idle"))
    with stream_in_flight(agent):
        assert agent.process is not None
        agent.process.send_signal(signal.SIGTERM)
        agent.wait_state("idle", "stopped")
        agent.wait_state("a", "unloading")
        assert agent.condition("ManifestValid")["status"] == "True"  # type: ignore[index]
        assert agent.condition("Draining")["status"] == "True"  # type: ignore[index]
        agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(30) == 0


def test_a_second_signal_does_not_wait_for_requests(agent: Agent) -> None:
    endless = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'
    loaded(agent, model("a", env=endless))
    with stream_in_flight(agent) as lines:
        assert agent.process is not None
        agent.process.send_signal(signal.SIGTERM)
        wait_until(lambda: _status(agent) == 503, what="draining")
        agent.process.send_signal(signal.SIGTERM)
    assert not any("[DONE]" in line for line in lines)
    assert agent.process.wait(30) == 0
    assert agent.processes() == []


@pytest.mark.slow
def test_a_backend_that_ignores_sigterm_is_killed_with_its_children(agent: Agent) -> None:
    """Scenario 7, llama-swap#38, #125."""
    deaf = '{STAND_IN: "--ignore-sigterm --spawn-children 2"}'
    loaded(agent, model("a", env=deaf, timeouts="{stop: 1s, kill: 5s}"))
    assert len(agent.processes()) >= 3
    assert agent.stop() == 0
    assert agent.processes() == []


def test_a_third_signal_kills_at_once(agent: Agent) -> None:
    deaf = '{STAND_IN: "--ignore-sigterm"}'
    loaded(agent, model("a", env=deaf, timeouts="{stop: 1h, kill: 5s}"))
    assert agent.process is not None
    for said in ("agent ending", "without waiting"):
        agent.process.send_signal(signal.SIGTERM)
        wait_until(lambda said=said: said in agent.log, what=said)  # type: ignore[misc]
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(30) == 0
    assert agent.processes() == []


def test_a_signal_during_a_load_ends_it(agent: Agent) -> None:
    agent.write(manifest(model("a", env='{STAND_IN: "--ready-after 600"}')))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loading")
    assert agent.stop() == 0
    assert agent.processes() == []


@pytest.mark.parametrize(
    ("skip_memory_check", "said"),
    [("true", "are not in the cache"), ("false", "the hub is being asked")],
)
def test_a_store_that_hangs_does_not_hold_the_end(
    make_agent: MakeAgent, skip_memory_check: str, said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # connects, and never says a word
        agent = make_agent("--hub", "s3://models")
        agent.environment |= {
            "MINIO_ENDPOINT": f"http://127.0.0.1:{deaf.getsockname()[1]}",
            "MINIO_ACCESS_KEY": "key",
            "MINIO_SECRET_KEY": "secret",
        }
        agent.write(manifest(model("a", skip_memory_check=skip_memory_check)))
        agent.start()
        agent.wait_up()
        agent.wait_model("a", lambda entry: said in entry["reason"])
        assert agent.stop() == 0


def _status(agent: Agent) -> int:
    """0: it was taken in, and its answer may never end."""
    body = {"model": "a", "messages": []}
    try:
        answer = httpx.post(
            f"{agent.url}/v1/chat/completions", json=body, timeout=2, trust_env=False
        )
    except httpx.ReadTimeout:
        return 0
    return answer.status_code
