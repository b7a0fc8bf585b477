"""`python -m tests.bench.cluster`: what it costs a real agent to follow 1 to 1,000 others.

The others are stubs in this process, on sockets of their own, that tell of four models each.
"""

import argparse
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

from tests.bench.__main__ import allow_files
from tests.bench.markdown import table
from tests.bench.usage import cpu_seconds, open_files, resident_bytes
from tests.e2e.agent import Agent
from tests.proxy.peers.stub_peer import StubPeer, model_entry, stub_peers

_SIZES = (0, 1, 10, 100, 1000)
_SECONDS = 40.0
"""Longer than it takes to ask 1,000 agents in turn."""
_MODELS = 4
_VIEWS = 20
_CHANGES = 30
_FILES = 8192


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


async def measure(count: int, seconds: float, folder: Path) -> Cost:
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


def rows(costs: list[Cost]) -> str:
    lines = table(
        (
            "peers",
            "CPU s a minute, quiet",
            "and while each changes every second",
            "questions a second",
            "while they change",
            "open files",
            "RSS, MB",
            "seen all after, s",
            "age of a change, median s",
            "most",
            "/servers, kB",
            "CPU ms",
            "median ms",
        ),
        [
            (
                f"{cost.peers:,}",
                f"{cost.quiet_cpu:.2f}",
                f"{cost.busy_cpu:.2f}",
                f"{cost.quiet_polls:.1f}",
                f"{cost.busy_polls:.1f}",
                str(cost.files),
                f"{cost.resident / 1e6:.0f}",
                f"{cost.seen_seconds:.1f}",
                f"{statistics.median(cost.ages):.2f}" if cost.ages else "–",
                f"{max(cost.ages):.2f}" if cost.ages else "–",
                f"{cost.view_bytes / 1000:.0f}",
                f"{cost.view_cpu_ms:.1f}",
                f"{cost.view_ms:.1f}",
            )
            for cost in costs
        ],
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.cluster")
    parser.add_argument("--peers", type=int, nargs="+", default=_SIZES)
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="of each measurement")
    options = parser.parse_args()
    allow_files(_FILES if max(options.peers) > 100 else 0)
    costs: list[Cost] = []
    for count in options.peers:
        with tempfile.TemporaryDirectory() as folder:
            costs.append(uvloop.run(measure(count, options.seconds, Path(folder))))
    print(rows(costs))


if __name__ == "__main__":
    main()
