"""Follows every other agent that discovery finds, and knows all of them at any moment."""

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import Any, Protocol

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.peers.document import Told
from reconciler.proxy.peers.follower import Asker, Company, Follower
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.peers.pace import pace
from reconciler.proxy.peers.peer import Latest, Peer, Peers, Unheard

GONE_SECONDS = 60.0
"""For which one that is listed no more, and cannot be reached, is still shown. People read that:
it is apart from errors.UNSURE_SECONDS, by which clients are answered."""
_LOOK_SECONDS = 1.0
"""Between looks for those whose time is over."""


class Clock(Protocol):
    def monotonic(self) -> float: ...
    def wall(self, moment: float) -> str: ...


class Listed(Protocol):
    """What was found; see `discovery.Found`."""

    @property
    def addresses(self) -> tuple[Address, ...]: ...
    @property
    def also(self) -> Mapping[Address, tuple[Address, ...]]: ...
    @property
    def unfound(self) -> tuple[Unheard, ...]: ...


class Members(Protocol):
    """See `Discovery`."""

    def current(self) -> Listed: ...
    async def newer_than(self, seen: Any) -> Listed: ...
    def not_a_peer(self, address: Address) -> None: ...
    def same_agent(self, address: Address, other: Address) -> None: ...
    def apart(self, address: Address) -> None: ...


class PeersFollowed:
    """`PeerReader` and `PeerLoads`. `run` follows; all else reads memory."""

    def __init__(
        self,
        members: Members,
        asker: Asker,
        *,
        agent_id: str,
        clock: Clock,
        gone_seconds: float = GONE_SECONDS,
    ) -> None:
        self._members = members
        self._agent_id = agent_id
        self._clock = clock
        self._gone_seconds = gone_seconds
        self._followers: dict[Address, Follower] = {}
        self._tasks: dict[Address, asyncio.Task[None]] = {}
        self._unfound = members.current().unfound
        self._peers: Peers | None = None
        self._pace = pace(0)
        self._company = Company(
            asker=asker,
            wall=clock.wall,
            pace=lambda: self._pace,
            count=lambda: len(self._followers),
            changed=self._changed,
            welcome=self._welcome,
            lost=self._lost,
            clock=clock.monotonic,
            chance=random.Random(),
        )

    def current(self) -> Peers:
        if self._peers is None:
            every = (follower.peer for follower in self._followers.values())
            self._peers = Peers(all=tuple(sorted(every, key=_place)), unfound=self._unfound)
        return self._peers

    def latest(self, peer: Address) -> Latest | None:
        follower = self._followers.get(peer)
        return follower.latest if follower is not None else None

    def load(self, peer: Address, model: ModelName) -> ModelLoad:
        follower = self._followers.get(peer)
        return follower.load(model) if follower is not None else IDLE

    def heard(self, peer: Address, model: ModelName, load: ModelLoad) -> None:
        if (follower := self._followers.get(peer)) is not None:
            follower.heard(model, load)

    def failed(self, peer: Address, because: str) -> None:
        if (follower := self._followers.get(peer)) is not None:
            follower.fail(because)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                listed = self._members.current()
                self._match(listed.addresses, tasks)
                if listed.unfound != self._unfound:
                    self._unfound = listed.unfound
                    self._changed()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._members.newer_than(listed)

    def _match(self, listed: tuple[Address, ...], tasks: asyncio.TaskGroup) -> None:
        for address in listed:
            if address not in self._followers:
                self._followers[address] = Follower(address, self._company)
                self._changed()
        for address in self._followers.keys() - set(listed):
            if self._is_over(self._followers[address]):
                self._part(address)
        self._pace = pace(len(self._followers))
        for address, follower in self._followers.items():
            if address not in self._tasks:
                self._tasks[address] = tasks.create_task(follower.run(), name=f"peer:{address}")

    def _is_over(self, follower: Follower) -> bool:
        """What still answers is not ours any more; of what has gone it is shown that it has."""
        since = follower.unreachable_since
        return since is None or self._clock.monotonic() - since >= self._gone_seconds

    def _part(self, address: Address) -> None:
        del self._followers[address]
        if (task := self._tasks.pop(address, None)) is not None:
            task.cancel()
        self._changed()

    def _welcome(self, follower: Follower, told: Told) -> bool:
        if told.agent_id is None:
            return True
        if told.agent_id == self._agent_id:
            self._members.not_a_peer(follower.address)
            self._forget(follower.address)
            return False
        if follower.peer.agent_id not in (None, told.agent_id):
            for address in self._members.current().also.get(follower.address, ()):
                self._members.apart(address)  # perhaps it is still the one before
        for other in list(self._followers.values()):
            if other is not follower and other.peer.agent_id == told.agent_id:
                return self._meet(follower, other)
        return True

    def _meet(self, follower: Follower, other: Follower) -> bool:
        """Both lead to one agent: whether `follower` is the one that stays."""
        if other.peer.reachable:
            self._members.same_agent(other.address, follower.address)
            self._forget(follower.address)
            return False
        self._members.same_agent(follower.address, other.address)
        self._part(other.address)
        return True

    def _lost(self, follower: Follower) -> None:
        """Where the agent has another address, that is tried next."""
        address = follower.address
        also = self._members.current().also.get(address, ())
        other = next((each for each in also if each not in self._followers), None)
        if other is not None:
            self._members.same_agent(other, address)
            self._followers[other] = self._followers.pop(address)
            self._tasks[other] = self._tasks.pop(address)
            follower.move(other)

    def _forget(self, address: Address) -> None:
        """Its task ends by itself."""
        del self._followers[address]
        del self._tasks[address]
        self._changed()

    def _changed(self) -> None:
        self._peers = None


def _place(peer: Peer) -> tuple[str, Address]:
    return peer.node or "unknown", peer.address
