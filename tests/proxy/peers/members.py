"""Lists of agents, and agents that follow them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from reconciler.plan.peering import Address
from reconciler.proxy.peers.client import PeerClient
from reconciler.proxy.peers.following import GONE_SECONDS, PeersFollowed
from reconciler.proxy.peers.peer import Peer, Unheard
from reconciler.proxy.peers.side import ClusterSide

T = TypeVar("T")

OWN_ID = "our-own-id"
_DEADLINE_SECONDS = 60.0
"""Only a hang reaches it. pytest-timeout's signal does not wake an idle uvloop."""


@dataclass
class Listed:
    """What discovery says; `strangers`: what it was told is no peer."""

    addresses: tuple[Address, ...] = ()
    strangers: list[Address] = field(default_factory=list)
    also: dict[Address, tuple[Address, ...]] = field(default_factory=dict)
    unfound: tuple[Unheard, ...] = ()

    def current(self) -> "Listed":
        return self

    async def newer_than(self, seen: object) -> "Listed":
        """Nobody says so: it is looked at again after a while."""
        await asyncio.Event().wait()
        return self

    def not_a_peer(self, address: Address) -> None:
        self.strangers.append(address)
        self.addresses = tuple(each for each in self.addresses if each != address)

    def same_agent(self, address: Address, other: Address) -> None:
        rest = [each for each in self.addresses if each not in (address, other)]
        self.addresses = (*rest, address)
        self.also = {address: (other,)}

    def apart(self, address: Address) -> None:
        self.also = {}
        self.addresses = (*self.addresses, address)


class SteadyClock:
    """The wall says the moment itself."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self, moment: float) -> str:
        return f"at {moment}"


@dataclass
class Follows:
    members: Listed
    followed: PeersFollowed
    side: ClusterSide

    async def until(self, look: Callable[[], T | None]) -> T:
        """What `look` gives at last."""
        while not (value := look()):  # noqa: ASYNC110 - what is known has no event
            await asyncio.sleep(0.01)
        return value

    @property
    def one(self) -> Peer:
        (peer,) = self.followed.current().all
        return peer

    async def until_one(self, holds: Callable[[Peer], bool]) -> Peer:
        def look() -> Peer | None:
            every = self.followed.current().all
            return next((peer for peer in every if holds(peer)), None)

        return await self.until(look)

    async def until_all_seen(self, count: int) -> None:
        def look() -> bool:
            every = self.followed.current().all
            return len(every) == count and all(peer.reachable for peer in every)

        await self.until(look)

    async def until_seen(self) -> Peer:
        return await self.until_one(lambda peer: peer.reachable)

    async def until_lost(self) -> Peer:
        """Of one that was asked."""
        return await self.until_one(
            lambda peer: not peer.reachable and peer.because != "has not been asked yet"
        )


@asynccontextmanager
async def following(
    *addresses: Address,
    token: str | None = None,
    answer_seconds: float = 4.0,
    gone_seconds: float = GONE_SECONDS,
) -> AsyncIterator[Follows]:
    """`answer_seconds`: what peers may take, beyond what they are told to wait."""
    members = Listed(addresses=addresses)
    async with PeerClient(lambda: token, answer_seconds=answer_seconds) as client:
        followed = PeersFollowed(
            members, client, agent_id=OWN_ID, clock=SteadyClock(), gone_seconds=gone_seconds
        )
        side = ClusterSide(
            peers=followed,
            loads=followed,
            tokens=lambda: token,
            agent_id=OWN_ID,
            latest=followed.latest,
        )
        running = asyncio.create_task(followed.run(), name="following")
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                yield Follows(members, followed, side)
        finally:
            running.cancel()
            await asyncio.wait((running,))


def local(port: int) -> Address:
    return Address(host="127.0.0.1", port=port)
