"""What many open streams cost that say nothing: the rate of other requests, memory, and CPU.

Their upstream gave each one event. The agent says something to each every 15 s; the others do not.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import uvloop

from tests.bench import wire
from tests.bench.backend import counts, drop
from tests.bench.load import ask_small, clients, noting_fault
from tests.bench.peers import Field, Peer
from tests.bench.small import CONNECTIONS
from tests.bench.usage import cpu_seconds, resident_bytes
from tests.bench.visitor import Visitor, visit

_AT_ONCE = 100
"""Opened together."""
_OPEN_SECONDS = 10.0
"""For `_AT_ONCE` streams to give their event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """`streams`: at each peer. `requests`: in each round without and with them.
    `silence_seconds`: two of the agent's heartbeats, with all streams of all peers open.
    `patience_seconds`: for the streams to end at the upstream once their clients left."""

    rounds: int = 3
    streams: int = 2_000
    requests: int = 6_000
    silence_seconds: float = 30.0
    patience_seconds: float = 5.0


FULL = Effort()
QUICK = Effort(rounds=1, streams=50, requests=200, silence_seconds=0.5, patience_seconds=1.5)


@dataclass(slots=True, kw_only=True)
class IdleStreams:
    """`rate_kept`, `cpu_kept`: requests a second, and CPU a request, with the streams open, as a
    part of those without; a value a round. `bytes_a_stream`: what the resident memory grew by when
    they were first opened. `left_open`: of all, what the upstream still worked on when its clients
    were gone. `silent_cpu`: of one core, while nothing is asked. `fault`: what stopped it.
    """

    rate_kept: list[float] = field(default_factory=list)
    cpu_kept: list[float] = field(default_factory=list)
    bytes_a_stream: float | None = None
    left_open: int = 0
    silent_cpu: float | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleResult:
    effort: Effort
    peers: dict[str, IdleStreams]


def measure(who: Field, effort: Effort) -> IdleResult:
    peers = {peer.name: IdleStreams() for peer in who.peers}
    for number in range(effort.rounds):
        for peer in who.turn(number):
            own = peers[peer.name]
            if own.fault is None:
                with noting_fault(own):
                    uvloop.run(_round(peer, effort, own))
                own.left_open += _left_open(who.upstream_port, effort.patience_seconds)
    uvloop.run(_silence(who, effort, peers))
    drop(who.upstream_port)
    return IdleResult(effort=effort, peers=peers)


def _left_open(upstream: int, patience: float) -> int:
    """How many are still running after a while; they are ended."""
    deadline = time.monotonic() + patience
    while (running := counts(upstream)["running"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    drop(upstream)
    return running


async def _round(peer: Peer, effort: Effort, own: IdleStreams) -> None:
    rate, cpu = await _load(peer, effort.requests)
    before = resident_bytes(peer.pid)
    async with _open_streams(peer, effort.streams):
        if own.bytes_a_stream is None:
            own.bytes_a_stream = (resident_bytes(peer.pid) - before) / effort.streams
        rate_with, cpu_with = await _load(peer, effort.requests)
    own.rate_kept.append(rate_with / rate)
    own.cpu_kept.append(cpu_with / cpu)


async def _load(peer: Peer, requests: int) -> tuple[float, float]:
    """Requests a second, and CPU seconds a request."""
    async with clients(peer.port, CONNECTIONS) as asked:
        await ask_small(asked, count=CONNECTIONS * 4)
        cpu, began = cpu_seconds(peer.pid), time.perf_counter()
        await ask_small(asked, count=requests)
        return (
            requests / (time.perf_counter() - began),
            (cpu_seconds(peer.pid) - cpu) / requests,
        )


async def _silence(who: Field, effort: Effort, peers: dict[str, IdleStreams]) -> None:
    """All peers at one time, since none has much to do."""
    async with AsyncExitStack() as stack:
        before: list[tuple[Peer, float, float]] = []
        for peer in who.peers:
            with noting_fault(peers[peer.name]):
                await stack.enter_async_context(_open_streams(peer, effort.streams))
                before.append((peer, cpu_seconds(peer.pid), time.monotonic()))
        await asyncio.sleep(effort.silence_seconds)
        for peer, cpu, began in before:
            with noting_fault(peers[peer.name]):
                used = cpu_seconds(peer.pid) - cpu
                peers[peer.name].silent_cpu = used / (time.monotonic() - began)


@asynccontextmanager
async def _open_streams(peer: Peer, count: int) -> AsyncIterator[None]:
    """So many, each of which has given its event; their clients leave at the end."""
    visitors: list[Visitor] = []
    try:
        while len(visitors) < count:
            numbers = range(len(visitors), min(count, len(visitors) + _AT_ONCE))
            tags = (wire.Tag(wire.Manner.STALLED, number) for number in numbers)
            fresh = [await visit(peer.port, wire.tagged_request(tag)) for tag in tags]
            visitors += fresh
            async with asyncio.timeout(_OPEN_SECONDS):
                await asyncio.gather(*(visitor.first_event() for visitor in fresh))
        yield
    finally:
        for visitor in visitors:
            visitor.leave()
