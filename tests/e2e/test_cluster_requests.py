"""OpenAI's own Python client, unchanged, at an agent whose models are all on another node."""

import signal
import threading
from collections.abc import Iterator, Sequence

import httpx
import openai
import pytest

from tests.e2e.agent import Agent
from tests.e2e.clients import HELLO, for_clients, start_for_clients
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.e2e.test_openai_sdk import (  # noqa: F401 - they run here with the client below
    test_a_file_in_a_form,
    test_a_full_queue_is_a_rate_limit,
    test_a_model_that_does_not_serve_is_unavailable,
    test_a_stream,
    test_a_stream_that_is_closed_ends_the_work,
    test_a_wrong_type_is_a_bad_request,
    test_an_unknown_model_is_not_found,
    test_chat,
    test_embeddings,
    test_models_are_listed_by_name_and_alias,
    test_no_key_is_needed_and_none_reaches_the_engine,
    test_the_request_id_is_ours_or_the_clients_own,
    where,
)
from tests.ports import own_ports
from tests.waiting import wait_until


def two(make: MakeAgent, ports: Sequence[int]) -> tuple[Agent, Agent]:
    """node-a and node-b, which know each other."""
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    made = [make("--peers", peers, name=name) for name in ("node-a", "node-b")]
    for agent, port in zip(made, ports, strict=True):
        agent.node, agent.listen = agent.root.name, f"127.0.0.1:{port}"
        agent.model_file()
    return made[0], made[1]


def wait_served(agent: Agent, name: str) -> None:
    """Until the agent knows who serves the model."""

    def serves() -> bool:
        listed = agent.client.get(f"{agent.url}/v1/models").json().get("data", ())
        return any(each["id"] == name and each["ready"] for each in listed)

    wait_until(serves, what=f"{agent.node} knows who serves {name}")


@pytest.fixture(scope="module")
def both(make_lasting_agent: MakeAgent) -> tuple[Agent, Agent]:
    """node-a has the models of tests/e2e/clients.py, node-b has none."""
    has, asks = two(make_lasting_agent, own_ports()[-2:])
    asks.write(for_clients(nodes="[node-a]"))
    asks.start()
    start_for_clients(has, nodes="[node-a]")
    asks.wait_up()
    for name in ("a", "embed", "long", "slow", "busy"):
        wait_served(asks, name)
    return has, asks


@pytest.fixture(scope="module", name="for_clients")
def where_the_models_are(both: tuple[Agent, Agent]) -> Agent:
    return both[0]


@pytest.fixture
def client(both: tuple[Agent, Agent]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(**where(both[1]), max_retries=0) as made:
        yield made


def test_a_model_of_a_node_that_comes_later_is_waited_for(make_agent: MakeAgent) -> None:
    """Clients never repeat a 404, and an agent that has just started knows of no other."""
    late, asks = two(make_agent, own_ports()[-6:-4])
    for each in (late, asks):
        each.write(manifest(model("far", nodes="[node-a]", aliases="[away]")))
    asks.start()
    asks.wait_up()
    wait_until(lambda: "node_starting" not in _ask(asks, "far").text, what="the manifest is read")
    for name in ("far", "away"):
        answer = _ask(asks, name)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "the manifest has it for node-a, of which nothing is known yet" in answer.text
    late.start()
    late.wait_up()
    late.wait_state("far", "loaded")
    wait_served(asks, "far")
    assert _ask(asks, "away").headers["x-served-by"] == "node-a/far"


def _ask(agent: Agent, name: str) -> httpx.Response:
    said = {"model": name, "messages": HELLO}
    return agent.client.post(f"{agent.url}/v1/chat/completions", json=said)


@pytest.mark.slow
def test_an_agent_that_ends_lets_the_answers_of_others_pass(make_agent: MakeAgent) -> None:
    """And passes new requests on for as long, though it has no backend of its own."""
    has, asks = two(make_agent, own_ports()[-4:-2])
    for each in (has, asks):
        long = '{STAND_IN: "--probe-well --chunks 80 --chunk-interval 0.1"}'
        each.write(manifest(model("long", nodes="[node-a]", env=long)))
        each.start()
    for each in (has, asks):
        each.wait_up()
    has.wait_state("long", "loaded")
    wait_served(asks, "long")
    begun, said = threading.Event(), []

    def ask() -> None:
        body = {"model": "long", "messages": HELLO, "stream": True}
        with httpx.stream(
            "POST", f"{asks.url}/v1/chat/completions", json=body, timeout=60, trust_env=False
        ) as answer:
            for piece in answer.iter_bytes():
                said.append(piece)
                begun.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(30)
    assert asks.process is not None
    asks.process.send_signal(signal.SIGTERM)
    readyz = f"{asks.url}/readyz"
    wait_until(lambda: asks.client.get(readyz).status_code == 503, what="it drains")
    for _ in range(5):
        body = {"model": "long", "messages": HELLO, "stream": True}
        url = f"{asks.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=60, trust_env=False) as new:
            assert new.status_code == 200
    asks.process.wait(60)
    asking.join()
    whole = b"".join(said)
    assert whole.endswith(b"data: [DONE]\n\n")
    assert b"error" not in whole
