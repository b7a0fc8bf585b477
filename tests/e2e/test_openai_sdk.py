"""OpenAI's own Python client, unchanged, against a real agent."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from tests.e2e.agent import Agent
from tests.e2e.clients import (
    HELLO,
    NAMES,
    TOKENS,
    counts,
    full_queue,
    headers_seen,
    wait_running,
)
from tests.e2e.manifests import manifest, model

OF_NO_IMPORTANCE = "sk-of-no-importance"


@pytest.fixture
def client(for_clients: Agent) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(**where(for_clients), max_retries=0) as made:
        yield made


def where(agent: Agent) -> dict[str, Any]:
    return {"base_url": f"{agent.url}/v1", "api_key": OF_NO_IMPORTANCE}


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=HELLO)
    assert answer.choices[0].message.content == TOKENS


def test_a_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="a", messages=HELLO, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == TOKENS


def test_embeddings(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="embed", input="Hello", encoding_format="float")
    assert answer.data[0].embedding == [0.5, -0.25, 0.125]


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_a_file_in_a_form(client: openai.OpenAI, size: int) -> None:
    answer = client.audio.transcriptions.create(
        model="gpt-4o-mini", file=("a.wav", b"\0" * size), language="en"
    )
    assert answer.text == TOKENS


def test_models_are_listed_by_name_and_alias(client: openai.OpenAI) -> None:
    """Scenario 51: llama-swap#1138, #399."""
    assert [each.id for each in client.models.list()] == NAMES
    assert client.models.retrieve("gpt-4o-mini").id == "gpt-4o-mini"


def test_the_request_id_is_ours_or_the_clients_own(client: openai.OpenAI) -> None:
    asked = client.chat.completions.with_raw_response
    answer = asked.create(model="a", messages=HELLO)
    assert answer.request_id
    assert answer.parse()._request_id == answer.request_id
    assert answer.headers["x-served-by"] == "node-a/a"
    named = asked.create(model="a", messages=HELLO, extra_headers={"X-Request-Id": "mine"})
    assert named.request_id == "mine"


@pytest.mark.parametrize("key", [OF_NO_IMPORTANCE, None])
def test_no_key_is_needed_and_none_reaches_the_engine(
    for_clients: Agent, client: openai.OpenAI, key: str | None
) -> None:
    """Until there are keys nobody is 401; the engine has a key of its own."""
    given = {} if key else {"Authorization": openai.Omit()}
    assert client.chat.completions.create(model="a", messages=HELLO, extra_headers=given).id
    seen = headers_seen(for_clients, "a")
    assert len([value for name, value in seen if name == "authorization"]) == 1
    assert not any(OF_NO_IMPORTANCE in value for _, value in seen)


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    assert raised.value.request_id


def test_a_wrong_type_is_a_bad_request(client: openai.OpenAI) -> None:
    """Scenario 54: gpustack#2408."""
    with pytest.raises(openai.BadRequestError, match="embed"):
        client.chat.completions.create(model="embed", messages=HELLO)


def test_a_full_queue_is_a_rate_limit(for_clients: Agent, client: openai.OpenAI) -> None:
    with full_queue(for_clients), pytest.raises(openai.RateLimitError) as raised:
        client.chat.completions.create(model="busy", messages=HELLO)
    assert raised.value.code == "rate_limit_exceeded"
    assert float(raised.value.response.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("name", "code"), [("stuck", "model_not_ready"), ("off", "model_disabled")]
)
def test_a_model_that_does_not_serve_is_unavailable(
    client: openai.OpenAI, name: str, code: str
) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(model=name, messages=HELLO)
    assert (raised.value.status_code, raised.value.code) == (503, code)


def test_a_stream_that_is_closed_ends_the_work(for_clients: Agent, client: openai.OpenAI) -> None:
    before = counts(for_clients, "long")["cancelled"]
    stream = client.chat.completions.create(model="long", messages=HELLO, stream=True)
    assert next(iter(stream)).choices
    assert counts(for_clients, "long")["running"] == 1
    stream.close()
    wait_running(for_clients, "long", 0)
    assert counts(for_clients, "long")["cancelled"] == before + 1


async def test_an_async_call_that_is_cancelled_ends_the_work(for_clients: Agent) -> None:
    """Before the first byte, as claude-code-proxy PR#114 had it."""
    before = counts(for_clients, "slow")["cancelled"]
    async with openai.AsyncOpenAI(**where(for_clients), max_retries=0) as client:
        call = asyncio.create_task(client.chat.completions.create(model="slow", messages=HELLO))
        await asyncio.to_thread(wait_running, for_clients, "slow", 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(wait_running, for_clients, "slow", 0)
    assert counts(for_clients, "slow")["cancelled"] == before + 1


class Tries:
    """What an SDK's own retries did: each request, and how long after the last answer it came."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.asked_to_wait: list[float] = []
        self._answered = time.monotonic()
        self.http_client = openai.DefaultHttpxClient(
            event_hooks={"request": [self._request], "response": [self._response]}
        )

    def _request(self, request: httpx2.Request) -> None:
        self.waited.append(time.monotonic() - self._answered)

    def _response(self, response: httpx2.Response) -> None:
        self._answered = time.monotonic()
        if response.status_code == 503:
            self.asked_to_wait.append(float(response.headers.get("retry-after", 0)))


@pytest.mark.slow
def test_its_retries_wait_as_long_as_they_were_told(agent: Agent) -> None:
    """503 with Retry-After is what they understand; by themselves they would ask within 0.5 s."""
    agent.write(manifest(model("late", env='{STAND_IN: "--ready-after 2"}')))
    agent.start()
    agent.wait_up()
    agent.wait_state("late", "loading")
    tries = Tries()
    with openai.OpenAI(**where(agent), max_retries=8, http_client=tries.http_client) as patient:
        answer = patient.chat.completions.create(model="late", messages=HELLO)
    assert answer.choices[0].message.content == TOKENS
    assert len(tries.asked_to_wait) == len(tries.waited) - 1 >= 1
    for waited, asked in zip(tries.waited[1:], tries.asked_to_wait, strict=True):
        assert waited >= asked > 1


def test_it_does_not_repeat_what_waiting_does_not_mend(for_clients: Agent) -> None:
    tries = Tries()
    with (
        openai.OpenAI(**where(for_clients), max_retries=5, http_client=tries.http_client) as eager,
        pytest.raises(openai.InternalServerError),
    ):
        eager.chat.completions.create(model="off", messages=HELLO)
    assert len(tries.waited) == 1
