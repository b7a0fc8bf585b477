"""Clients that leave: before the first byte, and in mid-stream. What is left of them afterwards."""

import asyncio
import itertools
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import httpx
import uvloop

from tests.bench.backend import Watch, counts, drop, watching
from tests.bench.load import WrongAnswer, ask_small, clients, noting_fault
from tests.bench.peers import Field, Peer
from tests.bench.usage import open_files, resident_bytes
from tests.bench.visitor import visit
from tests.bench.wire import Manner, Tag, tagged_request

AT_ONCE = 200
_ARRIVAL_SECONDS = 10.0
"""Of a request at the upstream, and of its first event."""
_SETTLE_SECONDS = 20.0
"""For kept connections to be closed."""
_IN_FLIGHT = re.compile(r"^xgen_requests_in_flight\{.*\} (\S+)$", re.MULTILINE)


class NeverClosed(WrongAnswer):
    """A client left, and the upstream worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Clients in each round: `before_byte` and `midway` many at a time, `one_by_one` alone.
    `patience_seconds`: until what is still open counts as never closed."""

    rounds: int = 5
    before_byte: int = 2_000
    midway: int = 200
    one_by_one: int = 40
    patience_seconds: float = 5.0


FULL = Effort()
QUICK = Effort(rounds=1, before_byte=40, midway=15, one_by_one=5, patience_seconds=1.5)


@dataclass(slots=True, kw_only=True)
class Leaves:
    """`delays`: seconds from a client's leaving to the end of its request at the upstream, one
    client at a time; a median a round. `left`: clients that left in all. `fault`: what stopped it.
    """

    delays: list[float] = field(default_factory=list)
    left: int = 0
    fault: str | None = None


@dataclass(slots=True, kw_only=True)
class Leaving:
    """What was measured of one peer; after the last client left: `running` at the upstream (ended
    by hand after each round), `in_flight` by the agent's own count, `files_growth` in open files,
    `growth_bytes` in resident memory since the end of the first round. `fault`: what stopped it.
    """

    before_byte: Leaves = field(default_factory=Leaves)
    midway: Leaves = field(default_factory=Leaves)
    running: int = 0
    in_flight: float | None = None
    files_growth: int | None = None
    growth_bytes: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingResult:
    effort: Effort
    peers: dict[str, Leaving]


def measure(who: Field, effort: Effort) -> LeavingResult:
    proxies = {peer.name: _Proxy(who, peer) for peer in who.peers if peer.is_proxy}
    for number in range(effort.rounds):
        for peer in who.turn(number):
            if peer.name in proxies:
                proxies[peer.name].measure(effort)
    return LeavingResult(
        effort=effort,
        peers={name: proxy.finished() for name, proxy in proxies.items()},
    )


class _Proxy:
    """One peer, and what was measured of it."""

    def __init__(self, who: Field, peer: Peer) -> None:
        self._upstream = who.upstream_port
        self._peer = peer
        self._own = Leaving()
        self._numbers = itertools.count()
        uvloop.run(_warm_up(peer))
        self._files = open_files(peer.pid)
        self._resident: list[int] = []

    def measure(self, effort: Effort) -> None:
        for manner, leaves, many in (
            (Manner.SILENT, self._own.before_byte, effort.before_byte),
            (Manner.STALLED, self._own.midway, effort.midway),
        ):
            if leaves.fault is None:
                with noting_fault(leaves):
                    uvloop.run(self._round(manner, leaves, many, effort))
                self._own.running += counts(self._upstream)["running"]
                drop(self._upstream)
        with noting_fault(self._own):
            self._resident.append(resident_bytes(self._peer.pid))

    async def _round(self, manner: Manner, leaves: Leaves, many: int, effort: Effort) -> None:
        async with watching(self._upstream) as watch:
            leave = partial(self._leave, watch, leaves, effort.patience_seconds)
            alone = [await leave(self._tag(manner)) for _ in range(effort.one_by_one)]
            leaves.delays.append(statistics.median(alone))
            crowd = iter([self._tag(manner) for _ in range(many)])
            await asyncio.gather(*(_all(leave, crowd) for _ in range(AT_ONCE)))

    def _tag(self, manner: Manner) -> Tag:
        return Tag(manner, next(self._numbers))

    async def _leave(self, watch: Watch, leaves: Leaves, patience: float, tag: Tag) -> float:
        """Seconds from a client's leaving to the end of its request at the upstream."""
        visitor = await visit(self._peer.port, tagged_request(tag))
        try:
            async with asyncio.timeout(_ARRIVAL_SECONDS):
                await watch.arrived(tag)
                if tag.manner is Manner.STALLED:
                    await visitor.first_event()
        except TimeoutError:
            raise WrongAnswer(f"{tag} did not reach the upstream: {visitor.received!r}") from None
        finally:
            left = time.monotonic()
            visitor.leave()
        leaves.left += 1
        try:
            async with asyncio.timeout(patience):
                return await watch.ended(tag) - left
        except TimeoutError:
            raise NeverClosed(f"still open {patience:.0f} s later") from None

    def finished(self) -> Leaving:
        own = self._own
        with noting_fault(own):
            own.growth_bytes = self._resident[-1] - self._resident[0]
            own.files_growth = self._settled_files() - self._files
            own.in_flight = _in_flight(self._peer)
        return own

    def _settled_files(self) -> int:
        deadline = time.monotonic() + _SETTLE_SECONDS
        while (files := open_files(self._peer.pid)) > self._files and time.monotonic() < deadline:
            time.sleep(0.1)
        return files


async def _all(leave: Callable[[Tag], Awaitable[float]], tags: Iterator[Tag]) -> None:
    for tag in tags:
        await leave(tag)


async def _warm_up(peer: Peer) -> None:
    async with clients(peer.port, 1) as asked:
        await ask_small(asked, count=100)


def _in_flight(peer: Peer) -> float | None:
    if peer.name != "agent":
        return None
    page = httpx.get(f"http://127.0.0.1:{peer.port}/metrics", trust_env=False).text
    return sum(float(value) for value in _IN_FLIGHT.findall(page))
