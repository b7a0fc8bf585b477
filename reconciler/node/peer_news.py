"""Which other agents come, fail and leave, as events of this node."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reconciler.events import EventKind, Journal, Level
from reconciler.plan.peering import Address
from reconciler.proxy.peers.follower import NOT_ASKED
from reconciler.proxy.peers.peer import Peer, PeerReader

_LOOK_SECONDS = 1.0
_NAMED = 3
"""Agents in one event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    kind: EventKind
    reason: str
    peers: tuple[str, ...]

    @property
    def level(self) -> Level:
        return Level.WARNING if self.kind is EventKind.PEER_LOST else Level.INFO


async def tell_of_peers(peers: PeerReader, journal: Journal) -> None:
    """Until it is cancelled."""
    teller = Teller()
    while True:
        for news in teller.look(peers.current().all):
            said = ", ".join(news.peers[:_NAMED])
            journal.record(
                news.kind, news.reason, level=news.level, peers=said, count=len(news.peers)
            )
        await asyncio.sleep(_LOOK_SECONDS)


class Teller:
    """One event of a kind and a reason a look: a thousand agents found at a start are one."""

    def __init__(self) -> None:
        self._told: dict[Address, tuple[str, bool]] = {}

    def look(self, peers: Iterable[Peer]) -> Iterable[News]:
        now = {peer.address: peer for peer in peers}
        gone = [self._told.pop(each)[0] for each in list(self._told) if each not in now]
        changed = [
            peer
            for peer in now.values()
            if peer.because != NOT_ASKED
            and self._told.get(peer.address, ("", None))[1] is not peer.reachable
        ]
        self._told |= {peer.address: (_name(peer), peer.reachable) for peer in changed}
        found = [_name(peer) for peer in changed if peer.reachable]
        lost = defaultdict[str | None, list[str]](list)
        for peer in changed:
            if not peer.reachable:
                lost[peer.because].append(_name(peer))
        if found:
            yield _news(EventKind.PEER_FOUND, found, "can be reached")
        for because, names in lost.items():
            yield _news(EventKind.PEER_LOST, names, f"cannot be reached: {because}")
        if gone:
            yield _news(EventKind.PEER_GONE, gone, "left the cluster")


def _name(peer: Peer) -> str:
    return f"{peer.node} ({peer.address})" if peer.node is not None else str(peer.address)


def _news(kind: EventKind, names: Sequence[str], what: str) -> News:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    reason = f"{', '.join(names[:_NAMED])}{more} {what}"
    return News(kind=kind, reason=reason, peers=tuple(names))
