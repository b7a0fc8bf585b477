"""What a client sees when the upstream's connection ends too early."""

import asyncio
from dataclasses import dataclass

import uvloop

from tests.bench.backend import watching
from tests.bench.load import noting_fault
from tests.bench.peers import Field, Peer
from tests.bench.visitor import Visitor, visit
from tests.bench.wire import Manner, Tag, tagged_request

_ANSWER_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class Ending:
    """`midway`: in mid-stream, in words. `status`, `tries`: before the first byte; how often the
    upstream was asked. `fault`: what stopped the measurement."""

    midway: str = ""
    status: int | None = None
    tries: int = 0
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingResult:
    peers: dict[str, Ending]


def measure(who: Field) -> EndingResult:
    peers = {peer.name: Ending() for peer in who.peers if peer.is_proxy}
    for peer in who.peers:
        if peer.is_proxy:
            with noting_fault(peers[peer.name]):
                uvloop.run(_look(peer, who.upstream_port, peers[peer.name]))
    return EndingResult(peers=peers)


async def _look(peer: Peer, upstream: int, own: Ending) -> None:
    own.midway = _words(await _whole_answer(peer, Tag(Manner.DYING, 0)))
    async with watching(upstream) as watch:
        tag = Tag(Manner.REFUSED, 1)
        own.status = (await _whole_answer(peer, tag)).status
        own.tries = watch.arrivals(tag)


async def _whole_answer(peer: Peer, tag: Tag) -> Visitor:
    visitor = await visit(peer.port, tagged_request(tag))
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await visitor.over()
    finally:
        visitor.leave()
    return visitor


def _words(visitor: Visitor) -> str:
    end = "ends as if it were whole" if visitor.is_whole else "is cut"
    return f"gets an error event, then {end}" if b'"error"' in visitor.received else end
