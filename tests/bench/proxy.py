"""What the proxy costs: CPU a request, CPU a chunk of a stream, and what it adds to the latency.

Peers are measured in turns, round after round, so that noise on the machine falls on all of them.
"""

import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import uvloop

from tests.bench import wire
from tests.bench.load import Clients, clients
from tests.bench.peers import Field, Peer, field_of_peers
from tests.bench.usage import cpu_seconds, resident_bytes

CONNECTIONS = 64
STREAMS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured. `requests`, `events` (of each stream), `pings`: in each round."""

    rounds: int = 5
    requests: int = 6_000
    events: int = 100
    pings: int = 400


FULL = Effort()
QUICK = Effort(rounds=1, requests=600, events=15, pings=40)


@dataclass(slots=True, kw_only=True)
class Rounds:
    """What was measured of one peer, a value a round; times in microseconds."""

    cpu_a_request: list[float] = field(default_factory=list)
    cpu_a_chunk: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    resident_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyResult:
    """`direct_p50`: without a proxy. `upstream_requests`: what the one backend answered in all."""

    effort: Effort
    peers: dict[str, Rounds]
    direct_p50: list[float]
    absent: dict[str, str]
    upstream_requests: int
    upstream_events: int


def measure(effort: Effort) -> ProxyResult:
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        field_of_peers(Path(folder)) as who,
    ):
        peers = {peer.name: Rounds() for peer in who.peers}
        direct_p50: list[float] = []
        for number in range(effort.rounds):
            uvloop.run(_round(who, number, effort, peers, direct_p50))
        for peer in who.peers:
            peers[peer.name].resident_bytes = resident_bytes(peer.pid)
        counts_page = f"http://127.0.0.1:{who.upstream_port}/counts"
        counts = httpx.get(counts_page, trust_env=False).json()
        return ProxyResult(
            effort=effort,
            peers=peers,
            direct_p50=direct_p50,
            absent=who.absent,
            upstream_requests=counts["requests"],
            upstream_events=counts["events"],
        )


async def _round(
    who: Field, number: int, effort: Effort, peers: dict[str, Rounds], direct_p50: list[float]
) -> None:
    """Measure everything once; each round begins with another peer."""
    first = number % len(who.peers)
    turn = (*who.peers[first:], *who.peers[:first])
    for peer in turn:
        peers[peer.name].cpu_a_request.append(await _requests(peer, effort))
    for peer in turn:
        peers[peer.name].cpu_a_chunk.append(await _streams(peer, effort))
    direct_p50.append(await _p50(who.upstream_port, effort))
    for peer in turn:
        peers[peer.name].p50.append(await _p50(peer.port, effort))


async def _requests(peer: Peer, effort: Effort) -> float:
    """CPU a request, in microseconds, with all connections busy."""
    async with clients(peer.port, CONNECTIONS) as asked:
        await _ask(asked, count=CONNECTIONS * 4)
        before = cpu_seconds(peer.pid)
        await _ask(asked, count=effort.requests)
        return (cpu_seconds(peer.pid) - before) / effort.requests * 1e6


async def _streams(peer: Peer, effort: Effort) -> float:
    """CPU a chunk, in microseconds, of streams that run side by side at the pace of an engine."""
    request, expected = wire.stream_request(effort.events), wire.stream_answer(effort.events)
    async with clients(peer.port, STREAMS) as asked:
        await _ask(asked, count=STREAMS)
        before = cpu_seconds(peer.pid)
        await asked.ask(request, expected, count=STREAMS)
        return (cpu_seconds(peer.pid) - before) / (STREAMS * effort.events) * 1e6


async def _p50(port: int, effort: Effort) -> float:
    """Median time to a whole answer, in microseconds, on one connection."""
    async with clients(port, 1) as asked:
        await _ask(asked, count=20)
        return statistics.median(await _ask(asked, count=effort.pings)) * 1e6


async def _ask(asked: Clients, *, count: int) -> list[float]:
    return await asked.ask(wire.json_request(), wire.JSON_ANSWER, count=count)
