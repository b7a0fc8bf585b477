"""What it costs a real agent to follow up to 1,000 others.

The others are stubs in this process, on sockets of their own, that tell of four models each.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from tests.bench.usage import cpu_seconds, open_files, resident_bytes
from tests.e2e.agent import Agent
from tests.proxy.peers.stub_peer import StubPeer, model_entry, stub_peers

_MODELS = 4
_VIEWS = 20
_CHANGES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """`seconds`: of each measurement; it takes 33 to ask 1,000 agents in turn."""

    peers: tuple[int, ...] = (0, 1, 10, 100, 1000)
    seconds: float = 40.0


FULL = Effort()
QUICK = Effort(peers=(0, 3), seconds=3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one agent with so many peers. `seen_seconds`: from its first answer until it has seen all
    of them. A minute of CPU while nothing changes, and while every peer changes every second.
    `polls`: a second, of all peers. `files`: that the agent has open. `ages`: how old a change was
    when the agent got it. `views`: of /api/cluster/servers, each after all peers told new figures.
    """

    peers: int
    seen_seconds: float
    quiet_cpu: float
    busy_cpu: float
    quiet_polls: float
    busy_polls: float
    files: int
    resident: int
    view_bytes: int
    view_cpu_ms: float
    view_ms: float
    ages: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterResult:
    effort: Effort
    costs: list[Cost]


def measure(effort: Effort) -> ClusterResult:
    costs = []
    for count in effort.peers:
        with tempfile.TemporaryDirectory() as folder:
            costs.append(uvloop.run(_cost(count, effort.seconds, Path(folder))))
    return ClusterResult(effort=effort, costs=costs)


async def _cost(count: int, seconds: float, folder: Path) -> Cost:
    peers = [_peer(number) for number in range(count)]
    async with stub_peers(peers) as addresses, _agent(folder, addresses) as agent:
        assert agent.process is not None
        pid = agent.process.pid
        async with aiohttp.ClientSession(read_bufsize=1 << 24) as session:
            began = time.monotonic()
            while (await _view(session, agent))["reachable"] <= count:  # noqa: ASYNC110 - of a process
                await asyncio.sleep(0.2)
            seen_seconds = time.monotonic() - began
            await asyncio.sleep(min(seconds, 2.0))  # what a start has to do besides
            quiet_cpu, quiet_polls = await _watched(pid, peers, seconds)
            files = open_files(pid)
            changed = random.sample(peers, min(count, _CHANGES))
            ages = await asyncio.gather(*(_age(peer) for peer in changed))
            changing = asyncio.create_task(_change_every_second(peers), name="changes")
            busy_cpu, busy_polls = await _watched(pid, peers, seconds)
            cpu_before = cpu_seconds(pid)
            views = [await _view(session, agent) for _ in range(_VIEWS)]
            view_cpu = (cpu_seconds(pid) - cpu_before) / _VIEWS
            changing.cancel()
            return Cost(
                peers=count,
                seen_seconds=seen_seconds,
                quiet_cpu=quiet_cpu,
                busy_cpu=busy_cpu,
                quiet_polls=quiet_polls,
                busy_polls=busy_polls,
                files=files,
                resident=resident_bytes(pid),
                view_bytes=views[-1]["size"],
                view_cpu_ms=view_cpu * 1000,
                view_ms=statistics.median(view["seconds"] for view in views) * 1000,
                ages=ages,
            )


async def _watched(pid: int, peers: list[StubPeer], seconds: float) -> tuple[float, float]:
    """CPU seconds a minute, and questions a second."""
    asked, cpu, began = _asked(peers), cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    return (cpu_seconds(pid) - cpu) / took * 60, (_asked(peers) - asked) / took


async def _age(peer: StubPeer) -> float:
    """How long a change of one peer took to be told."""
    began, before = time.monotonic(), peer.told_whole
    peer.change(changed=began)
    while peer.told_whole == before:  # noqa: ASYNC110 - counted as it is sent
        await asyncio.sleep(0.002)
    return time.monotonic() - began


async def _change_every_second(peers: list[StubPeer]) -> None:
    """Each at a moment of its own."""
    number = 0
    while peers:
        for peer in peers:
            number += 1
            peer.load = {"model-0": {"in_flight": number % 7}}
            peer.change(changed=number)
            await asyncio.sleep(1 / len(peers))


def _asked(peers: list[StubPeer]) -> int:
    return sum(len(peer.asked) for peer in peers)


async def _view(session: aiohttp.ClientSession, agent: Agent) -> dict[str, Any]:
    began = time.monotonic()
    async with session.get(f"{agent.url}/api/cluster/servers") as response:
        body = await response.read()
    seconds = time.monotonic() - began
    return {"seconds": seconds, "size": len(body), "reachable": body.count(b'"reachable":true')}


def _peer(number: int) -> StubPeer:
    peer = StubPeer(node=f"node-{number}", agent_id=f"agent-{number}")
    more = {"last_lines": [], "conditions": [{"type": "Ready", "message": "x" * 400}] * 4}
    peer.serve(*(model_entry(f"model-{each}", **more) for each in range(_MODELS)))
    return peer


@asynccontextmanager
async def _agent(folder: Path, addresses: tuple[object, ...]) -> AsyncIterator[Agent]:
    agent = Agent(root=folder)
    for path in (agent.manifests, agent.data, agent.hub):
        path.mkdir()
    agent.write("apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nspec: {allow_empty: true}\n")
    peers = ("--peers", ",".join(map(str, addresses))) if addresses else ()
    agent.start("--node", "node", *peers)
    try:
        await asyncio.to_thread(agent.wait_up)
        yield agent
    finally:
        await asyncio.to_thread(agent.stop)
