"""A container's probes: when each is due, and what its answers come to."""

import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.deploy.container import Container

Object = dict[str, Any]


@dataclass(kw_only=True)
class Probe:
    """`verdict`: None until it has an own one. `quicker`: how many times as often it asks as it is
    told to; its limits stay. `asked`: how often it has."""

    said: Object
    ask: Callable[[Object, float], bool]
    quicker: float = 1.0
    verdict: bool | None = None
    asked: int = 0
    _next: float = 0.0
    _run: int = 0
    _last: bool | None = None

    def __post_init__(self) -> None:
        self._next = time.monotonic() + self.said.get("initialDelaySeconds", 0) / self.quicker

    def look(self) -> None:
        """Ask, where it is due."""
        if time.monotonic() < self._next:
            return
        good = self.ask(self.said, self.said.get("timeoutSeconds", 1))
        self._next = time.monotonic() + self.said.get("periodSeconds", 10) / self.quicker
        self.asked += 1
        self._run = self._run + 1 if good == self._last else 1
        self._last = good
        wanted = ("successThreshold", 1) if good else ("failureThreshold", 3)
        if self._run >= self.said.get(*wanted):
            self.verdict = good


@dataclass(kw_only=True)
class Health:
    """Of one container. The others wait until the one of its start has succeeded."""

    startup: Probe | None
    readiness: Probe | None
    liveness: Probe | None
    fallen: str | None = field(default=None)
    """Which probe says that it has to be killed."""

    @property
    def ready(self) -> bool:
        return self._started and (self.readiness is None or self.readiness.verdict is True)

    @property
    def _started(self) -> bool:
        return self.startup is None or self.startup.verdict is True

    def look(self) -> None:
        if not self._started:
            assert self.startup is not None
            self.startup.look()
            if self.startup.verdict is False:
                self.fallen = "startup"
            return
        if self.liveness is not None:
            self.liveness.look()
            if self.liveness.verdict is False:
                self.fallen = "liveness"
        if self.readiness is not None:
            self.readiness.look()


def health(container: Object, running: Container, address: str, *, quicker: float) -> Health:
    """Of a container that has just been started."""
    ports = {each.get("name"): each["containerPort"] for each in container.get("ports", ())}

    def ask(said: Object, seconds: float) -> bool:
        return answers(said, running, address, ports, seconds)

    def probe(kind: str) -> Probe | None:
        said = container.get(f"{kind}Probe")
        return Probe(said=said, ask=ask, quicker=quicker) if said else None

    return Health(
        startup=probe("startup"), readiness=probe("readiness"), liveness=probe("liveness")
    )


def answers(
    said: Object, running: Container, address: str, ports: dict[Any, int], seconds: float
) -> bool:
    """Whether one question of a probe, or of a hook, is answered well."""
    if "exec" in said:
        try:
            return running.run(said["exec"]["command"], seconds=seconds) == 0
        except subprocess.TimeoutExpired:
            return False
    if "tcpSocket" in said:
        port = said["tcpSocket"]["port"]
        try:
            socket.create_connection((address, ports.get(port, port)), timeout=seconds).close()
        except OSError:
            return False
        return True
    get = said["httpGet"]
    port, scheme = ports.get(get["port"], get["port"]), get.get("scheme", "HTTP").lower()
    url = f"{scheme}://{get.get('host') or address}:{port}{get.get('path', '/')}"
    headers = {each["name"]: each["value"] for each in get.get("httpHeaders", ())}
    try:
        with httpx.Client(trust_env=False, timeout=seconds) as client:
            return 200 <= client.get(url, headers=headers).status_code < 400
    except httpx.HTTPError:
        return False
