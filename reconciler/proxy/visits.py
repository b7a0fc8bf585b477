"""Requests at replicas, this node's own and others': counted, timed, and what came of them."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import TracebackType

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.breaker import Attempt, Breakers, Outcome, Replica
from reconciler.proxy.first_bytes import FirstBytes
from reconciler.proxy.sent import Sent


class Visits:
    """For one event loop."""

    def __init__(self) -> None:
        self.sent = Sent()
        self.breakers = Breakers()
        self.first_bytes = FirstBytes()
        self.away: Counter[tuple[Address, ModelName]] = Counter()
        """Under way at other nodes."""
        self._hops = 0
        self._none_away = asyncio.Event()

    def begin(self, model: ModelName, address: Address | None, *, streams: bool) -> "Visit":
        """Counted from now on: `with` what comes back. `address`: None: on this node."""
        return Visit(self, (address, model), streams=streams)

    @contextmanager
    def hop(self) -> Iterator[None]:
        """One that is under way at another node, too, because its client has named that."""
        self._hops += 1
        try:
            yield
        finally:
            self._hops -= 1
            self.look_whether_none()

    def passing(self) -> str:
        """What is under way at other nodes, in words; empty: nothing."""
        said = [f"{count} of {model} at {at}" for (at, model), count in self.away.items()]
        if self._hops:
            said.append(f"{self._hops} for nodes that their clients named")
        return ", ".join(said)

    async def wait_none_away(self) -> None:
        while self.away or self._hops:
            self._none_away.clear()
            await self._none_away.wait()

    def look_whether_none(self) -> None:
        if not self.away and not self._hops:
            self._none_away.set()

    def keep_only(self, replicas: Collection[Replica], *, reached: Collection[Replica]) -> None:
        """Forget the others. `reached`: those whose node is. How long a lost node took says nothing
        of it once it is back."""
        self.sent.keep_only(replicas)
        self.breakers.keep_only(replicas)
        self.first_bytes.keep_only(reached)


class Visit:
    """One request at one replica. `relayed_bytes`, `is_work`: as of an `inflight.Request`."""

    __slots__ = (
        "_attempt",
        "_replica",
        "_streams",
        "_visits",
        "_waiting",
        "is_work",
        "relayed_bytes",
    )

    def __init__(self, visits: Visits, replica: Replica, *, streams: bool) -> None:
        now = time.monotonic()
        self._visits = visits
        self._replica = replica
        self._streams = streams
        self.is_work = False
        self.relayed_bytes = 0
        visits.sent.began(replica)
        address, model = replica
        if address is not None:
            visits.away[address, model] += 1
        self._attempt: Attempt | None = visits.breakers.began(replica, now)
        self._waiting = visits.first_bytes.began(replica, now, streams=streams)

    @property
    def address(self) -> Address | None:
        return self._replica[0]

    def came(self, outcome: Outcome) -> None:
        """Of it: the head of an answer began, or never will."""
        if self._attempt is not None:
            now = time.monotonic()
            self._visits.breakers.ended(self._replica, self._attempt, outcome, now)
            self._attempt = None

    def first_byte(self) -> None:
        """Of an answer that is no error."""
        now = time.monotonic()
        self._visits.first_bytes.came(self._replica, self._waiting, now, streams=self._streams)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        visits, replica = self._visits, self._replica
        visits.sent.ended(replica)
        address, model = replica
        if address is not None:
            visits.away[address, model] -= 1
            if not visits.away[address, model]:
                del visits.away[address, model]
            visits.look_whether_none()
        if self._attempt is not None:  # neither an answer nor a failure: its client has left
            now = time.monotonic()
            visits.first_bytes.left(replica, self._waiting, now, streams=self._streams)
        self.came(Outcome.NEITHER)
        visits.first_bytes.gone(replica, self._waiting, streams=self._streams)
