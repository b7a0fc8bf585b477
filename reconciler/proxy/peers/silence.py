"""No request waits for ever at an agent that hangs: its kernel keeps the connections it has.

An agent whose status cannot be had, and which sends nothing of an answer either, is taken for gone
after as long as a host that vanished. One that refuses to tell, as while a new cluster token has
not come to all nodes, does not hang.
"""

import asyncio
import time
from collections.abc import Callable

from reconciler.plan.peering import Address
from reconciler.proxy.peers.peer import PeerReader

SILENT_SECONDS = 30.0
_LOOK_SECONDS = 1.0


class Silence:
    """`give_up(address, seconds)`: ends what has waited there in vain for so long."""

    def __init__(self, peers: PeerReader, give_up: Callable[[Address, float], None]) -> None:
        self._peers = peers
        self._give_up = give_up
        self._unreachable: dict[Address, float] = {}
        """Since when, in monotonic seconds."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)

    def look(self, now: float) -> None:
        every = self._peers.current().all
        gone = [peer.address for peer in every if not peer.reachable and not peer.refuses]
        self._unreachable = {each: self._unreachable.get(each, now) for each in gone}
        for address, since in self._unreachable.items():
            if now - since >= SILENT_SECONDS:
                self._give_up(address, SILENT_SECONDS)
