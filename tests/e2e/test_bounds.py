"""The flags of `run` that say how much clients may take up."""

import json

import httpx
import pytest

from tests.e2e.agent import Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model


@pytest.mark.slow
def test_sites_set_their_own_bounds(make_agent: MakeAgent) -> None:
    agent = make_agent("--max-body-mib", "1", "--queue-length", "0", "--heartbeat-seconds", "0.1")
    _serve_one_that_hangs(agent)
    assert _ask(agent, "x" * (1 << 20)).json()["error"]["code"] == "body_too_large"
    body = {"model": "a", "messages": [], "stream": True}
    with agent.client.stream("POST", f"{agent.url}/v1/chat/completions", json=body) as first:
        answer = first.iter_raw()
        assert next(answer).startswith(b": ping")
        busy = _ask(agent, "x")
    assert (busy.status_code, busy.json()["error"]["code"]) == (429, "rate_limit_exceeded")


def test_a_turn_is_waited_for_as_long_as_the_site_says(make_agent: MakeAgent) -> None:
    agent = make_agent("--queue-seconds", "0.2", "--heartbeat-seconds", "0.1")
    _serve_one_that_hangs(agent)
    body = {"model": "a", "messages": [], "stream": True}
    with agent.client.stream("POST", f"{agent.url}/v1/chat/completions", json=body) as first:
        answer = first.iter_raw()
        next(answer)
        busy = _ask(agent, "x")
    assert "it was busy for 0.2 s" in busy.json()["error"]["message"]


def _serve_one_that_hangs(agent: Agent) -> None:
    agent.model_file()
    agent.write(manifest(model("a", max_in_flight="1", env='{STAND_IN: "--probe-well --hang"}')))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")


def _ask(agent: Agent, text: str) -> httpx.Response:
    body = json.dumps({"model": "a", "messages": [{"role": "user", "content": text}]})
    return agent.client.post(f"{agent.url}/v1/chat/completions", content=body)
