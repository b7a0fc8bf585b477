"""What the tests of the clients' SDKs ask: models in every state, and what the engines saw."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.e2e.agent import Agent, Entry
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

NAMES = ["a", "busy", "embed", "gpt-4o-mini", "long", "off", "slow", "stuck"]
HELLO: Any = [{"role": "user", "content": "Hello"}]
TOKENS = "token0 token1 token2 "
"""What the stand-in says."""
QUEUE_LENGTH = 100
"""How many may wait for a model with max_in_flight (docs/http.md)."""
_NEVER = "--probe-well --first-byte-after 3600"
_ENDLESS = "--probe-well --chunks 100000 --chunk-interval 0.05"


def start_for_clients(agent: Agent, **where: str) -> None:
    """`a`, alias `gpt-4o-mini`, and `embed` answer; `long` streams for ever; `slow` and `busy` (one
    at a time) never begin; `off` is disabled; `stuck` loads for ever.
    `where`: fields of all of them."""
    agent.write(for_clients(**where))
    agent.start()
    agent.wait_up()
    for name in ("a", "embed", "long", "slow", "busy"):
        agent.wait_state(name, "loaded")
    agent.wait_state("stuck", "loading")


def for_clients(**where: str) -> str:
    """Their manifest."""
    return manifest(
        model("a", aliases="[gpt-4o-mini]", env='{STAND_IN: "--chunk-interval 0.02"}', **where),
        model("embed", type="embedding", **where),
        model("long", env=f'{{STAND_IN: "{_ENDLESS}"}}', **where),
        model("slow", env=f'{{STAND_IN: "{_NEVER}"}}', **where),
        model("busy", max_in_flight="1", env=f'{{STAND_IN: "{_NEVER}"}}', **where),
        model("off", enabled="false", **where),
        model("stuck", env='{STAND_IN: "--ready-after 3600"}', priority="-1", **where),
    )


def counts(agent: Agent, name: str) -> Entry:
    """What the engine counts itself: requests running, seen, cancelled, …"""
    return _debug(agent, name, "state")


def wait_running(agent: Agent, name: str, number: int) -> None:
    wait_until(
        lambda: bool(counts(agent, name)["running"] == number), what=f"{number} running at {name}"
    )


def headers_seen(agent: Agent, name: str) -> list[tuple[str, str]]:
    """Of the last request that reached the engine."""
    return [(key.lower(), value) for key, value in _debug(agent, name, "last")["headers"]]


def _debug(agent: Agent, name: str, page: str) -> Entry:
    entry = agent.model(name)
    assert entry is not None
    said: Entry = httpx.get(
        f"http://127.0.0.1:{entry['port']}/debug/{page}", trust_env=False
    ).json()
    return said


@contextmanager
def full_queue(agent: Agent) -> Iterator[None]:
    """Until the end of the block `busy` works, and as many wait for it as may."""
    body = json.dumps({"model": "busy", "messages": []}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    address = urlsplit(agent.url)
    with ExitStack() as stack:
        for _ in range(1 + QUEUE_LENGTH):
            client = socket.create_connection((address.hostname, address.port))
            stack.enter_context(client)
            client.sendall(head + body)
        wait_until(lambda: _waiting(agent) == QUEUE_LENGTH, what="the queue is full")
        yield
    wait_running(agent, "busy", 0)


def _waiting(agent: Agent) -> int:
    for line in agent.client.get(f"{agent.url}/metrics").text.splitlines():
        if line.startswith('xgen_requests_waiting{model="busy"} '):
            return int(float(line.split()[1]))
    return 0
