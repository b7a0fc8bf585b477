"""Which files go, so that others fit (PURE): the least recently used first, no more than needed.

A file that several revisions share is one inode; its bytes are free once its last user is gone.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

Inode = tuple[int, int]
"""Device and number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Files of one revision that go together: no model needs them, and they were used together.

    `paths`: relative to it. `whole`: nothing of the revision is left without them. `inodes`: bytes
    on disk. `last_used`: seconds since 1970.
    """

    prefix: str
    digest: str
    paths: frozenset[str]
    whole: bool
    last_used: float
    inodes: Mapping[Inode, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What can go. `staying`: inodes that something needs. `outside`: those with a name that is
    not in the cache, so that the disk keeps them."""

    units: tuple[Unit, ...] = ()
    staying: frozenset[Inode] = frozenset()
    outside: frozenset[Inode] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """Bytes by which the cache is smaller, and by which the disk has more room."""

    cache: int = 0
    disk: int = 0

    def covers(self, other: "Freed") -> bool:
        return self.cache >= other.cache and self.disk >= other.disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`enough` False: even all that can go is too little, which is `freed`; nothing should go."""

    units: tuple[Unit, ...] = ()
    freed: Freed = field(default_factory=Freed)
    enough: bool = True


def choose_evictions(stock: Stock, missing: Freed) -> Choice:
    """The units to remove so that at least this much is free, the least recently used first."""
    tally = _Tally(stock)
    chosen: list[Unit] = []
    for unit in in_order(stock.units):
        if tally.freed.covers(missing):
            break
        if tally.can_free(unit):
            tally.remove(unit)
            chosen.append(unit)
    if not tally.freed.covers(missing):
        return Choice(freed=tally.freed, enough=False)
    useful = tuple(unit for unit in chosen if any(map(tally.is_free, unit.inodes)))
    return Choice(units=useful, freed=tally.freed)


def all_evictions(stock: Stock) -> Choice:
    """Everything that no model needs."""
    units = in_order(stock.units)
    return Choice(units=tuple(units), freed=freed_by(stock, units))


def freed_by(stock: Stock, units: Iterable[Unit]) -> Freed:
    tally = _Tally(stock)
    for unit in units:
        tally.remove(unit)
    return tally.freed


def in_order(units: Collection[Unit]) -> list[Unit]:
    return sorted(
        units, key=lambda unit: (unit.last_used, unit.prefix, unit.digest, sorted(unit.paths))
    )


class _Tally:
    """Counts the users of each inode down."""

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self._users = Counter(inode for unit in stock.units for inode in unit.inodes)
        self.freed = Freed()

    def can_free(self, unit: Unit) -> bool:
        """Whether it holds anything that nobody needs."""
        return not self._stock.staying.issuperset(unit.inodes)

    def is_free(self, inode: Inode) -> bool:
        return self._users[inode] == 0 and inode not in self._stock.staying

    def remove(self, unit: Unit) -> None:
        cache, disk = self.freed.cache, self.freed.disk
        for inode, size_bytes in unit.inodes.items():
            self._users[inode] -= 1
            if self.is_free(inode):
                cache += size_bytes
                disk += 0 if inode in self._stock.outside else size_bytes
        self.freed = Freed(cache=cache, disk=disk)
