"""Simulated replicas and time: what happens to requests once somebody has chosen where they go."""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

GIVE_UP_SECONDS = 60.0
"""What takes longer has failed for its client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """From `begin` to `end` a replica `is` so: "stalled": no request gets on; "failing": it
    answers 500 at once; "absent": nobody knows of it yet, or any more."""

    begin: float
    end: float
    is_: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`speed`: work a second in one slot. With more than `batch` requests at work each of them
    gets on more slowly; those beyond `slots` wait for their turn. Of the keys that it worked for
    last it has so many `prefixes` in its cache: the next one's prefill takes a tenth."""

    speed: float = 1.0
    slots: int = 8
    batch: int = 8
    prefixes: int = 0
    spells: tuple[Spell, ...] = ()

    def is_(self, what: str, now: float) -> bool:
        return any(each.is_ == what and each.begin <= now < each.end for each in self.spells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, the same for every contender. `prefill`, `work`: seconds at speed 1 to the
    first byte, and to the end. `entry`: where it comes in. `key`: what it belongs to."""

    at: float
    prefill: float
    work: float
    entry: int
    key: int = 0


@dataclass(slots=True, eq=False)
class Request:
    ask: Ask
    first_byte: Callable[[], None]
    ended: Callable[[], None]
    prefill: float
    work: float


class Clock:
    """Simulated seconds; what is due is done in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, when: float, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (when, self._number, do))

    def run(self) -> None:
        while self._due:
            self.now, _, do = heapq.heappop(self._due)
            do()


class Replica:
    """Requests at work share its batch. Progress is counted in work done in each slot, so that one
    number tells of all of them."""

    def __init__(self, clock: Clock, shape: Shape) -> None:
        self.shape = shape
        self._clock = clock
        self._queue: deque[Request] = deque()
        self._marks: list[tuple[float, int, Request, bool]] = []
        self._working = 0
        self._done = 0.0
        self._as_of = 0.0
        self._version = 0
        self._number = 0
        self._prefixes: dict[int, None] = {}
        self.hits = 0
        for spell in shape.spells:
            for moment in (spell.begin, spell.end):
                clock.at(moment, self._plan)

    @property
    def in_flight(self) -> int:
        return self._working

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def take(self, request: Request) -> None:
        self._advance()
        self._queue.append(request)
        self._admit()
        self._plan()

    def _admit(self) -> None:
        while self._queue and self._working < self.shape.slots:
            request = self._queue.popleft()
            self._working += 1
            self._use_prefix(request)
            for after, is_end in ((request.prefill, False), (request.work, True)):
                self._number += 1
                mark = (self._done + after, self._number, request, is_end)
                heapq.heappush(self._marks, mark)

    def _use_prefix(self, request: Request) -> None:
        key = request.ask.key
        if key in self._prefixes:
            del self._prefixes[key]
            self.hits += 1
            request.work -= 0.9 * request.prefill
            request.prefill *= 0.1
        self._prefixes[key] = None
        if len(self._prefixes) > self.shape.prefixes:
            del self._prefixes[next(iter(self._prefixes))]

    def _rate(self, at: float) -> float:
        if not self._working or self.shape.is_("stalled", at):
            return 0.0
        return self.shape.speed * min(1.0, self.shape.batch / self._working)

    def _advance(self) -> None:
        """Its rate is the same from `_as_of` till now: each change of it plans anew."""
        self._done += (self._clock.now - self._as_of) * self._rate(self._as_of)
        self._as_of = self._clock.now

    def _plan(self) -> None:
        self._advance()
        self._version += 1
        rate, version = self._rate(self._clock.now), self._version
        if self._marks and rate:
            left = max(0.0, self._marks[0][0] - self._done)
            self._clock.at(self._clock.now + left / rate, lambda: self._reached(version))

    def _reached(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        self._done = max(self._done, self._marks[0][0])
        _, _, request, is_end = heapq.heappop(self._marks)
        if is_end:
            self._working -= 1
            self._admit()
        self._plan()
        (request.ended if is_end else request.first_byte)()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """`rate`: a second, on average. `burst`: for `on` of every `period` seconds so many times as
    many as in the rest; 1: evenly (Poisson). Lengths are log-normal: `spread` is their sigma."""

    rate: float
    seconds: float = 240.0
    burst: float = 1.0
    on: float = 5.0
    period: float = 20.0
    spread: float = 1.0
    entries: int = 1
    keys: int = 1
    prefill: float = 0.1
    """The mean, of a whole of one second."""

    def asks(self, seed: int) -> Iterator[Ask]:
        random_ = random.Random(seed)
        low = self.rate / (1 + (self.burst - 1) * self.on / self.period)
        now = 0.0
        while True:
            now += random_.expovariate(low * self.burst)
            if now >= self.seconds:
                return
            prefill = self._length(random_, self.prefill)
            decode = self._length(random_, 1.0 - self.prefill)
            at_burst = now % self.period < self.on
            kept = at_burst or random_.random() < 1 / self.burst
            entry, key = random_.randrange(self.entries), self._key(random_)
            if kept:
                yield Ask(at=now, prefill=prefill, work=prefill + decode, entry=entry, key=key)

    def _length(self, random_: random.Random, mean: float) -> float:
        drawn = random_.lognormvariate(-(self.spread**2) / 2, self.spread)
        return mean * min(drawn, 20.0)

    def _key(self, random_: random.Random) -> int:
        """Some are asked for much more often than others."""
        return int(random_.paretovariate(0.4)) % self.keys


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the requests of one contender."""

    latencies: list[float] = field(default_factory=list)
    errors: int = 0
    served: list[int] = field(default_factory=list)
    hits: int = 0

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
