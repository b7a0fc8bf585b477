"""Anthropic's own Python client, unchanged, against a real agent; with an engine: see
test_real_clients.py."""

from collections.abc import Iterator

import anthropic
import pytest

from tests.e2e.agent import Agent
from tests.e2e.clients import HELLO, full_queue


@pytest.fixture
def client(for_clients: Agent) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=for_clients.url, api_key="of no importance", max_retries=0
    ) as made:
        yield made


def ask(client: anthropic.Anthropic, model: str) -> None:
    client.messages.create(model=model, max_tokens=4, messages=HELLO)


@pytest.mark.parametrize(
    ("model", "raised", "kind"),
    [
        ("nobody", anthropic.NotFoundError, "not_found_error"),
        ("embed", anthropic.BadRequestError, "invalid_request_error"),
        ("stuck", anthropic.ServiceUnavailableError, "overloaded_error"),
        ("off", anthropic.ServiceUnavailableError, "overloaded_error"),
    ],
)
def test_it_knows_our_errors_by_class_and_type(
    client: anthropic.Anthropic, model: str, raised: type[anthropic.APIStatusError], kind: str
) -> None:
    with pytest.raises(raised, match=f"cannot .* model '{model}'") as seen:
        ask(client, model)
    assert seen.value.type == kind
    assert seen.value.request_id
    assert seen.value.body["request_id"] == seen.value.request_id  # type: ignore[index]


def test_a_stream_that_cannot_begin_is_the_same_error(client: anthropic.Anthropic) -> None:
    with (
        pytest.raises(anthropic.NotFoundError),
        client.messages.stream(model="nobody", max_tokens=4, messages=HELLO),
    ):
        pass


def test_counting_tokens_fails_alike(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="nobody", messages=HELLO)


def test_a_full_queue_is_a_rate_limit(for_clients: Agent, client: anthropic.Anthropic) -> None:
    with full_queue(for_clients), pytest.raises(anthropic.RateLimitError) as seen:
        ask(client, "busy")
    assert seen.value.type == "rate_limit_error"
    assert float(seen.value.response.headers["retry-after"]) > 0
