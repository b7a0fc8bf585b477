"""How long replicas lately took to the first byte of their answers (PURE: `now` is given).

The mean is that of the logarithms: one long prompt among many does not make a replica slow.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from reconciler.proxy.breaker import Replica

HALF_LIFE_SECONDS = 20.0
"""After which an answer counts half."""
FORGET_SECONDS = 120.0
"""Without any answer nothing is known of a replica any more: so a slow one is tried again."""
SILENT_FACTOR = 3.0
"""A request that waits so many times longer than usual counts as an answer that took as long, also
after its client has left."""
_SHORTEST_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request whose first byte has not come."""

    number: int


@dataclass(slots=True)
class _Mean:
    """`weight`: of all answers, as of `at`; `logs`: the sum of their logarithms, weighted so."""

    at: float
    weight: float = 0.0
    logs: float = 0.0
    waiting: dict[int, float] = field(default_factory=dict)

    def take(self, seconds: float, now: float) -> None:
        fade = 0.5 ** ((now - self.at) / HALF_LIFE_SECONDS) if now > self.at else 1.0
        self.weight = self.weight * fade + 1.0
        self.logs = self.logs * fade + math.log(max(seconds, _SHORTEST_SECONDS))
        self.at = now

    def give_up(self, seconds: float, now: float) -> None:
        """After so long in vain. Where that is far longer than usual, an answer would have taken at
        least as long; else the wait says nothing."""
        if self.weight > 0.0 and seconds > SILENT_FACTOR * math.exp(self.logs / self.weight):
            self.take(seconds, now)

    def seconds(self, now: float) -> float | None:
        known = self.weight > 0.0 and now - self.at < FORGET_SECONDS
        mean = math.exp(self.logs / self.weight) if known else None
        oldest = now - next(iter(self.waiting.values()), now)
        if mean is None:
            return oldest or None
        return oldest if oldest > SILENT_FACTOR * mean else mean


class FirstBytes:
    """Per replica, streams apart from what is answered whole. Each `began` has one `came`,
    `gone` or `left`."""

    def __init__(self) -> None:
        self._means: dict[tuple[Replica, bool], _Mean] = {}
        self._numbers = itertools.count()

    def began(self, replica: Replica, now: float, *, streams: bool) -> Waiting:
        mean = self._means.get((replica, streams))
        if mean is None:
            mean = self._means[replica, streams] = _Mean(at=now)
        waiting = Waiting(next(self._numbers))
        mean.waiting[waiting.number] = now
        return waiting

    def came(self, replica: Replica, waiting: Waiting, now: float, *, streams: bool) -> None:
        """The first byte of an answer that is no error."""
        mean = self._means.get((replica, streams))
        if mean is not None and (since := mean.waiting.pop(waiting.number, None)) is not None:
            mean.take(now - since, now)

    def gone(self, replica: Replica, waiting: Waiting, *, streams: bool) -> None:
        """None will come, or that of an error: of that the breaker hears."""
        mean = self._means.get((replica, streams))
        if mean is not None:
            mean.waiting.pop(waiting.number, None)

    def left(self, replica: Replica, waiting: Waiting, now: float, *, streams: bool) -> None:
        """Its client waits no longer."""
        mean = self._means.get((replica, streams))
        if mean is not None and (since := mean.waiting.pop(waiting.number, None)) is not None:
            mean.give_up(now - since, now)

    def seconds(self, replica: Replica, now: float, *, streams: bool) -> float | None:
        """None: not known, or too long ago."""
        mean = self._means.get((replica, streams))
        return None if mean is None else mean.seconds(now)

    def keep_only(self, replicas: Iterable[Replica]) -> None:
        """Forget the others."""
        kept = set(replicas)
        for gone in [each for each in self._means if each[0] not in kept]:
            del self._means[gone]
