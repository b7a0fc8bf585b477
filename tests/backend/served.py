"""A backend's real process, started straight from a launch, without anything of `apply`."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from reconciler.backend.launch import Launch
from reconciler.observe.progress import Progress, progress_of
from tests.waiting import wait_for, wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """`output`: everything that it printed. Requests go past any proxy, with its key."""

    launch: Launch
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def url(self) -> str:
        return f"http://{self.launch.host}:{self.launch.port}"

    def client(self, key: str | None = None) -> httpx.Client:
        bearer = {"Authorization": f"Bearer {key or self.launch.api_key}"}
        return httpx.Client(base_url=self.url, headers=bearer, timeout=60, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        with self.client() as client:
            return client.get(path)

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body)

    def health(self) -> int | None:
        """None: nobody listens yet."""
        try:
            return self.get("/health").status_code
        except httpx.TransportError:
            return None

    def wait_listening(self) -> None:
        """It answers, be it that it is still loading."""
        wait_for(self.health, what=f"an answer: {self.lines()[-3:]}")

    def wait_loaded(self) -> list[int]:
        """Returns what /health said on the way."""
        seen: list[int] = []

        def loaded() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended: {self.lines()[-5:]}")
            if (status := self.health()) is not None:
                seen.append(status)
            return status == 200

        wait_until(loaded, what="the model", seconds=60)
        return seen

    def exit_code(self) -> int:
        """Of a process that ends by itself, or was told to."""
        return self.process.wait(20)

    def lines(self) -> list[str]:
        return self.output.read_text(encoding="utf-8", errors="replace").splitlines()

    def running(self) -> int:
        """How many requests the engine says that it works on."""
        found = progress_of(self.get("/metrics").text, self.launch.counters)
        assert isinstance(found, Progress), found
        assert found.running is not None
        return found.running


@contextmanager
def served(launch: Launch, output: Path, *, through: Sequence[str] = ()) -> Iterator[Served]:
    """Spawn it in a session of its own; nothing of it is left at the end. `through`: a command
    that runs the rest of its arguments."""
    with output.open("wb") as log:
        process = subprocess.Popen(
            [*through, *launch.argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(launch.env),
            start_new_session=True,
        )
    try:
        yield Served(launch=launch, process=process, output=output)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
