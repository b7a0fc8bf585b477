"""What the proxy costs: CPU a request, CPU a chunk of a stream, and what it adds to the latency.

Peers are measured in turns, round after round, so that noise on the machine falls on all of them.
"""

import statistics
from dataclasses import dataclass, field

import uvloop

from tests.bench import wire
from tests.bench.backend import counts
from tests.bench.load import ask_small, clients, noting_fault
from tests.bench.peers import Field, Peer
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
    """What was measured of one peer, a value a round; times in microseconds.

    `fault`: what stopped it.
    """

    is_proxy: bool
    resident_bytes: int
    """Before the first request."""
    cpu_a_request: list[float] = field(default_factory=list)
    cpu_a_chunk: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallResult:
    """`direct_p50`: without a proxy. `upstream_requests`: what the one backend answered in all."""

    effort: Effort
    peers: dict[str, Rounds]
    direct_p50: list[float]
    upstream_requests: int
    upstream_events: int


def measure(who: Field, effort: Effort) -> SmallResult:
    peers = {
        peer.name: Rounds(is_proxy=peer.is_proxy, resident_bytes=resident_bytes(peer.pid))
        for peer in who.peers
    }
    direct_p50: list[float] = []
    for number in range(effort.rounds):
        uvloop.run(_round(who, number, effort, peers, direct_p50))
    answered = counts(who.upstream_port)
    return SmallResult(
        effort=effort,
        peers=peers,
        direct_p50=direct_p50,
        upstream_requests=answered["requests"],
        upstream_events=answered["events"],
    )


async def _round(
    who: Field, number: int, effort: Effort, peers: dict[str, Rounds], direct_p50: list[float]
) -> None:
    """Measure everything once."""
    turn = [(peer, peers[peer.name]) for peer in who.turn(number)]
    for peer, own in turn:
        with noting_fault(own):
            own.cpu_a_request.append(await _requests(peer, effort))
    for peer, own in turn:
        with noting_fault(own):
            own.cpu_a_chunk.append(await _streams(peer, effort))
    direct_p50.append(await _p50(who.upstream_port, effort))
    for peer, own in turn:
        with noting_fault(own):
            own.p50.append(await _p50(peer.port, effort))


async def _requests(peer: Peer, effort: Effort) -> float:
    """CPU a request, in microseconds, with all connections busy."""
    async with clients(peer.port, CONNECTIONS) as asked:
        await ask_small(asked, count=CONNECTIONS * 4)
        before = cpu_seconds(peer.pid)
        await ask_small(asked, count=effort.requests)
        return (cpu_seconds(peer.pid) - before) / effort.requests * 1e6


async def _streams(peer: Peer, effort: Effort) -> float:
    """CPU a chunk, in microseconds, of streams that run side by side at the pace of an engine."""
    request, expected = wire.stream_request(effort.events), wire.stream_answer(effort.events)
    async with clients(peer.port, STREAMS) as asked:
        await ask_small(asked, count=STREAMS)
        before = cpu_seconds(peer.pid)
        await asked.ask(request, expected, count=STREAMS)
        return (cpu_seconds(peer.pid) - before) / (STREAMS * effort.events) * 1e6


async def _p50(port: int, effort: Effort) -> float:
    """Median time to a whole answer, in microseconds, on one connection."""
    async with clients(port, 1) as asked:
        await ask_small(asked, count=20)
        return statistics.median(await ask_small(asked, count=effort.pings)) * 1e6
