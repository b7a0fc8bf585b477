"""What this node has at other nodes that their last figures do not count yet (PURE).

A peer counts our requests as well as everybody's. So what is ours is added as far as it came, or
ended, since the peer said what it has.
"""

from collections import Counter
from collections.abc import Iterable

from reconciler.proxy.breaker import Replica


class Sent:
    """Requests of ours per replica. Every `began` has its one `ended`."""

    def __init__(self) -> None:
        self._now: Counter[Replica] = Counter()
        self._told: Counter[Replica] = Counter()

    def began(self, replica: Replica) -> None:
        self._now[replica] += 1

    def ended(self, replica: Replica) -> None:
        self._now[replica] -= 1
        if not self._now[replica]:
            del self._now[replica]

    def told(self, replica: Replica) -> None:
        """The replica's newest figures came just now: they count what is ours."""
        self._told[replica] = self._now[replica]

    def unreported(self, replica: Replica) -> int:
        """Less than 0: more of ours ended there than began since."""
        return self._now[replica] - self._told[replica]

    def keep_only(self, replicas: Iterable[Replica]) -> None:
        """Forget what others told."""
        for gone in self._told.keys() - set(replicas):
            del self._told[gone]
