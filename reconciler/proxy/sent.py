"""What this node has at other nodes that their last figures do not count yet (PURE).

A peer counts our requests as well as everybody's. So what is ours is added as far as it came, or
ended, since the peer said what it has.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from reconciler.proxy.breaker import Replica


class Sent:
    """Requests of ours per replica. Every `began` has its one `ended`."""

    def __init__(self) -> None:
        self._now: Counter[Replica] = Counter()
        self._told: Counter[Replica] = Counter()
        self._seen: dict[Replica, object] = {}
        self._newest: Callable[[Replica], object] = _nothing

    def follow(self, newest: Callable[[Replica], object]) -> None:
        """`newest`: a replica's figures; others are another object. They are looked at before what
        is ours changes, for they may have come at any time."""
        self._newest = newest

    def began(self, replica: Replica) -> None:
        self._catch_up(replica)
        self._now[replica] += 1

    def ended(self, replica: Replica) -> None:
        self._catch_up(replica)
        self._now[replica] -= 1
        if not self._now[replica]:
            del self._now[replica]

    def unreported(self, replica: Replica) -> int:
        """Less than 0: more of ours ended there than began since."""
        self._catch_up(replica)
        return self._now[replica] - self._told[replica]

    def keep_only(self, replicas: Iterable[Replica]) -> None:
        """Forget what others told."""
        for gone in self._seen.keys() - set(replicas):
            del self._seen[gone], self._told[gone]

    def _catch_up(self, replica: Replica) -> None:
        """Newer figures count what is ours now."""
        newest = self._newest(replica)
        if newest is not self._seen.get(replica):
            self._seen[replica] = newest
            self._told[replica] = self._now[replica]


def _nothing(replica: Replica) -> object:
    return None
