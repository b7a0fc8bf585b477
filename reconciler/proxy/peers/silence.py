"""No request waits for ever at an agent that hangs: its kernel keeps the connections it has.

An agent whose status cannot be had, and which sends nothing of an answer either, is taken for gone
within 20 s. However slow a prompt is, its agent goes on telling its status meanwhile. One that
refuses to tell, as while a new cluster token has not come to all nodes, does not hang.
"""

import asyncio
import time
from collections.abc import Callable

from reconciler.plan.peering import Address
from reconciler.proxy.peers.peer import PeerReader

UNREACHED_SECONDS = 12.0
"""From the first failure to have its status, which is known 6 s after the question."""
QUIET_SECONDS = 18.0
"""Without a byte of an answer: longer than from one heartbeat of a stream to the next."""
_LOOK_SECONDS = 1.0


class Silence:
    """`give_up(address, seconds)`: ends what has waited there in vain for so long. Seconds:
    see the constants; `look_seconds`: from one look to the next."""

    def __init__(
        self,
        peers: PeerReader,
        give_up: Callable[[Address, float], None],
        *,
        unreached_seconds: float = UNREACHED_SECONDS,
        quiet_seconds: float = QUIET_SECONDS,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._peers = peers
        self._give_up = give_up
        self._unreached_seconds = unreached_seconds
        self._quiet_seconds = quiet_seconds
        self._look_seconds = look_seconds
        self._unreachable: dict[Address, float] = {}
        """Since when, in monotonic seconds."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(self._look_seconds)

    def look(self, now: float) -> None:
        every = self._peers.current().all
        gone = [peer.address for peer in every if not peer.reachable and not peer.refuses]
        self._unreachable = {each: self._unreachable.get(each, now) for each in gone}
        for address, since in self._unreachable.items():
            if now - since >= self._unreached_seconds:
                self._give_up(address, self._quiet_seconds)
