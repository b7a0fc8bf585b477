"""Clients leave, in crowds and at every point; the agent and its backends notice (design §9)."""

import asyncio
import json
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

STREAMS = 50
SOAK_SECONDS = float(os.environ.get("XGEN_SOAK_SECONDS", "3"))
"""`make soak` gives it a minute."""


def start(agent: Agent, misbehaviour: str) -> int:
    """Load model `a`; returns the backend's port."""
    agent.write(manifest(model("a", env=f'{{STAND_IN: "{misbehaviour}"}}')))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    view = agent.model("a")
    assert view is not None
    return _listening_port(view["pid"])


def running(port: int) -> int:
    """The backend's own count of requests that it works on."""
    answer = httpx.get(f"http://127.0.0.1:{port}/debug/state", trust_env=False)
    return int(answer.json()["running"])


@pytest.mark.parametrize(
    ("misbehaviour", "stream", "read_first"),
    [
        ("--first-byte-after 3600", True, False),
        ("--first-byte-after 3600", False, False),
        ("--chunks 100000 --chunk-interval 0.05", True, True),
    ],
    ids=["stream-before-the-first-byte", "whole-answer-before-the-first-byte", "in-mid-stream"],
)
def test_a_client_that_leaves_frees_the_backend(
    agent: Agent, misbehaviour: str, stream: bool, read_first: bool
) -> None:
    """Scenarios 46, 47, 50: litellm#37140, claude-code-proxy PR#114, kubeai#9."""
    port = start(agent, f"--probe-well {misbehaviour}")
    body = json.dumps({"model": "a", "messages": [], "stream": stream}).encode()
    address = urlsplit(agent.url)
    with socket.create_connection((address.hostname, address.port)) as client:
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        if read_first:
            assert client.recv(100)
        wait_until(lambda: running(port) == 1, what="the backend works on it")
    wait_until(lambda: running(port) == 0, what="the backend stopped", seconds=5)
    wait_until(lambda: agent.model("a")["in_flight"] == 0, what="it counts as load no more")  # type: ignore[index]


@pytest.mark.slow
def test_many_streams_leave_nothing_behind(agent: Agent) -> None:
    """50 parallel streams; then open files, tasks and memory are as before."""
    interval = 0.1
    chunks = int(SOAK_SECONDS / interval)
    port = start(agent, f"--probe-well --chunks {chunks} --chunk-interval {interval}")
    assert agent.process is not None
    pid = agent.process.pid
    asyncio.run(_streams(agent.url, 5, chunks=chunks, leave_after=20))
    wait_until(lambda: running(port) == 0, what="the warm-up ended")
    before_files, before_kib = _open_files(pid), _resident_kib(pid)
    ended = asyncio.run(_streams(agent.url, STREAMS, chunks=chunks))
    assert ended == STREAMS
    wait_until(lambda: running(port) == 0, what="the backend is idle")
    wait_until(
        lambda: _open_files(pid) <= before_files + 5,
        what="open files return (a few idle connections to the backend may stay)",
    )
    assert _resident_kib(pid) - before_kib < 20 * 1024


async def _streams(url: str, count: int, *, chunks: int, leave_after: int | None = None) -> int:
    """Open streams at once; returns how many came to their clean end."""

    async def one(client: httpx.AsyncClient) -> bool:
        body = {"model": "a", "messages": [], "stream": True}
        got = 0
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    got += 1
                if leave_after is not None and got >= leave_after:
                    return False
                if line == "data: [DONE]":
                    return got >= chunks
        return False

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as client:
        return sum(await asyncio.gather(*(one(client) for _ in range(count))))


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def _listening_port(pid: int) -> int:
    """The port that a stand-in was given, from its arguments."""
    args = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return int(args[args.index("--port") + 1])
