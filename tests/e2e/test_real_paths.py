"""The engine paths besides chat, with a real llama.cpp behind them."""

import json
import shutil

import httpx
import pytest

from tests.e2e.agent import Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.model_files import gemma

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

CHAT = real_model("gemma", "ctx_size: 1024", aliases="[claude]")
HELLO = [{"role": "user", "content": "Say hello."}]


@pytest.fixture
def serving(make_agent: MakeAgent) -> Agent:
    agent = make_agent(real=True)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma.gguf"))
    agent.write(manifest(CHAT))
    agent.start()
    agent.wait_up()
    agent.wait_state("gemma", "loaded", seconds=120)
    return agent


def _events(agent: Agent, path: str, body: dict[str, object]) -> list[dict[str, object]]:
    with httpx.stream("POST", agent.url + path, json=body, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        lines = list(answer.iter_lines())
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_llama_cpp_answers_on_all_the_paths_that_it_has(serving: Agent) -> None:
    asked = {"model": "claude", "messages": HELLO, "max_tokens": 4}
    message = serving.post("/v1/messages", asked).json()
    counted = serving.post("/v1/messages/count_tokens", asked).json()
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert counted["input_tokens"] > 0
    kinds = [event["type"] for event in _events(serving, "/v1/messages", asked | {"stream": True})]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")

    response = serving.post(
        "/v1/responses", {"model": "claude", "input": "Say hello.", "max_output_tokens": 4}
    ).json()
    assert response["object"] == "response"
    assert httpx.get(f"{serving.url}/v1/responses/{response['id']}").status_code == 404

    tokens = serving.post("/tokenize", {"content": "hello world"}).json()["tokens"]
    text = serving.post("/detokenize?model=claude", {"tokens": tokens}).json()["content"]
    assert text == "hello world"
