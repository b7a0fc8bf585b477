"""OpenAI's own Python client, unchanged, against a real agent."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until


@pytest.fixture
def serving(agent: Agent) -> Agent:
    """Models: `a` with an alias, `embed`, `off` (disabled), `stuck` (loads for ever)."""
    agent.write(
        manifest(
            model("a", aliases="[gpt-4o-mini]", env='{STAND_IN: "--chunk-interval 0.02"}'),
            model("embed", type="embedding"),
            model("off", enabled="false"),
            model("stuck", env='{STAND_IN: "--ready-after 3600"}', priority="-1"),
        )
    )
    agent.start()
    agent.wait_up()
    for name in ("a", "embed"):
        agent.wait_state(name, "loaded")
    agent.wait_state("stuck", "loading")
    return agent


@pytest.fixture
def client(serving: Agent) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{serving.url}/v1", api_key="of no importance", max_retries=0
    ) as made:
        yield made


HELLO: Any = [{"role": "user", "content": "Hello"}]


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=HELLO)
    assert answer.choices[0].message.content == "token0 token1 token2 "


def test_a_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="a", messages=HELLO, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == "token0 token1 token2 "


def test_embeddings(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="embed", input="Hello", encoding_format="float")
    assert answer.data[0].embedding == [0.5, -0.25, 0.125]


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_a_file_in_a_form(client: openai.OpenAI, size: int) -> None:
    answer = client.audio.transcriptions.create(
        model="gpt-4o-mini", file=("a.wav", b"\0" * size), language="en"
    )
    assert answer.text == "token0 token1 token2 "


def test_models_are_listed_by_name_and_alias(client: openai.OpenAI) -> None:
    """Scenario 51: llama-swap#1138, #399."""
    names = [each.id for each in client.models.list()]
    assert names == ["a", "embed", "gpt-4o-mini", "off", "stuck"]
    assert client.models.retrieve("gpt-4o-mini").id == "gpt-4o-mini"


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert raised.value.code == "model_not_found"


def test_a_wrong_type_is_a_bad_request(client: openai.OpenAI) -> None:
    """Scenario 54: gpustack#2408."""
    with pytest.raises(openai.BadRequestError, match="embed"):
        client.chat.completions.create(model="embed", messages=HELLO)


@pytest.mark.parametrize(
    ("name", "code"), [("stuck", "model_not_ready"), ("off", "model_disabled")]
)
def test_a_model_that_does_not_serve_is_unavailable(
    client: openai.OpenAI, name: str, code: str
) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(model=name, messages=HELLO)
    assert (raised.value.status_code, raised.value.code) == (503, code)


def test_a_stream_that_is_closed_ends_the_work(serving: Agent, client: openai.OpenAI) -> None:
    serving.write(
        manifest(model("long", env='{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 1"}'))
    )
    serving.wait_state("long", "loaded")
    stream = client.chat.completions.create(model="long", messages=HELLO, stream=True)
    assert next(iter(stream)).choices
    wait_until(lambda: serving.model("long")["in_flight"] == 1, what="in flight")  # type: ignore[index]
    stream.close()
    wait_until(lambda: serving.model("long")["in_flight"] == 0, what="ended")  # type: ignore[index]


def test_the_client_waits_out_a_model_that_comes_back(serving: Agent) -> None:
    """503 with Retry-After is what its own retries understand."""
    serving.write(manifest(model("late", env='{STAND_IN: "--ready-after 2"}')))
    serving.wait_state("late", "loading")
    with openai.OpenAI(base_url=f"{serving.url}/v1", api_key="x", max_retries=8) as patient:
        answer = patient.chat.completions.create(model="late", messages=HELLO)
    assert answer.choices[0].message.content
