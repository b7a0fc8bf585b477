"""A client that streams while something happens to the agent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.e2e.agent import Agent


@contextmanager
def stream_in_flight(agent: Agent, name: str = "a") -> Iterator[list[str]]:
    """A stream whose first chunk has come; the list holds its lines when the block is left."""
    lines: list[str] = []
    begun = threading.Event()

    def read() -> None:
        body = {"model": name, "messages": [], "stream": True}
        try:
            with httpx.stream(
                "POST", f"{agent.url}/v1/chat/completions", json=body, timeout=60, trust_env=False
            ) as answer:
                for line in answer.iter_lines():
                    lines.append(line)
                    begun.set()
        except httpx.HTTPError as exc:
            lines.append(f"broken: {exc!r}")

    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(20)
    yield lines
    reader.join(60)
    assert not reader.is_alive()
