"""What large bodies cost: 12 MB of JSON, with the name of the model at their start or end."""

from dataclasses import dataclass, field

import uvloop

from tests.bench import wire
from tests.bench.load import ask_small, clients, noting_fault
from tests.bench.peers import Field, Peer
from tests.bench.usage import cpu_seconds, forget_peak, peak_bytes, resident_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """`bodies`: of each kind in each round, one after the other."""

    rounds: int = 3
    bodies: int = 8


FULL = Effort()
QUICK = Effort(rounds=1, bodies=1)


@dataclass(slots=True, kw_only=True)
class BigBodies:
    """CPU seconds a request, a value a round. `growth_bytes`: from the resident memory before the
    first to the peak. `fault`: what stopped it."""

    model_first: list[float] = field(default_factory=list)
    model_last: list[float] = field(default_factory=list)
    growth_bytes: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodiesResult:
    effort: Effort
    peers: dict[str, BigBodies]


def measure(who: Field, effort: Effort) -> BodiesResult:
    first, last = wire.big_request(model_last=False), wire.big_request(model_last=True)
    peers = {peer.name: BigBodies() for peer in who.peers}
    before: dict[str, int] = {}
    for peer in who.peers:
        uvloop.run(_warm_up(peer))
        forget_peak(peer.pid)
        before[peer.name] = resident_bytes(peer.pid)
    for number in range(effort.rounds):
        for peer in who.turn(number):
            own = peers[peer.name]
            with noting_fault(own):
                own.model_first.append(uvloop.run(_cost(peer, first, effort.bodies)))
                own.model_last.append(uvloop.run(_cost(peer, last, effort.bodies)))
                own.growth_bytes = peak_bytes(peer.pid) - before[peer.name]
    return BodiesResult(effort=effort, peers=peers)


async def _warm_up(peer: Peer) -> None:
    async with clients(peer.port, 1) as asked:
        await ask_small(asked, count=100)


async def _cost(peer: Peer, request: bytes, count: int) -> float:
    async with clients(peer.port, 1) as asked:
        before = cpu_seconds(peer.pid)
        await asked.ask(request, wire.JSON_ANSWER, count=count)
        return (cpu_seconds(peer.pid) - before) / count
