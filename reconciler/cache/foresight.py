"""What downloads that are to come would evict, chosen as they themselves would (PURE).

Each is foreseen after the ones before it: with what they take, and without what went for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.cache.demand import Demand, refusal
from reconciler.cache.eviction import Freed, Unit, choose_evictions, freed_by
from reconciler.cache.inventory import LastUses, StoredRevision, stock
from reconciler.cache.pins import Pins
from reconciler.plan.changes import Evicted
from reconciler.plan.evictions import Evictions, NoFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A download to come: of files of which so many bytes are not here."""

    prefix: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """The cache as it stands. `pins`: what must stay while the downloads come. `demand`: of those
    that are under way, and nothing more. `cut_off`: bytes that earlier downloads have left, which
    go where nothing else makes room. `folder`: for the words of a refusal."""

    revisions: tuple[StoredRevision, ...]
    pins: Pins
    uses: LastUses
    demand: Demand
    cut_off: int
    folder: str


def foresee(shelf: Shelf, arrivals: Sequence[Arrival]) -> Evictions:
    """In the order in which they are given. What finds no room evicts nothing."""
    evicted: list[Evicted] = []
    unfit: list[NoFit] = []
    for arrival in arrivals:
        if arrival.size_bytes <= 0:
            continue
        there = stock(shelf.revisions, shelf.pins, shelf.uses)
        demand = replace(shelf.demand, needed=arrival.size_bytes)
        choice = choose_evictions(there, demand.missing)
        if not choice.enough:
            roomier = _roomier(shelf)
            demand = replace(roomier.demand, needed=arrival.size_bytes)
            choice = choose_evictions(there, demand.missing)
            if not choice.enough:
                unfit.append(_unfit(shelf, arrival, choice.freed))
                continue
            shelf = roomier
        for number, unit in enumerate(choice.units):
            before = freed_by(there, choice.units[:number])
            after = freed_by(there, choice.units[: number + 1])
            evicted.append(
                Evicted(
                    prefix=unit.prefix,
                    revision=unit.digest,
                    size_bytes=after.cache - before.cache,
                )
            )
        shelf = _after(shelf, arrival, choice.units, choice.freed)
    return Evictions(evicted=tuple(evicted), unfit=tuple(unfit))


def _roomier(shelf: Shelf) -> Shelf:
    """Without what downloads that were cut off have left."""
    demand = replace(
        shelf.demand,
        used=max(0, shelf.demand.used - shelf.cut_off),
        free=shelf.demand.free + shelf.cut_off,
    )
    return replace(shelf, demand=demand, cut_off=0)


def _after(shelf: Shelf, arrival: Arrival, gone: Sequence[Unit], freed: Freed) -> Shelf:
    demand = replace(
        shelf.demand,
        used=shelf.demand.used - freed.cache + arrival.size_bytes,
        free=shelf.demand.free + freed.disk - arrival.size_bytes,
    )
    return replace(shelf, demand=demand, revisions=_without(shelf.revisions, gone))


def _without(
    revisions: Sequence[StoredRevision], gone: Sequence[Unit]
) -> tuple[StoredRevision, ...]:
    whole = {(unit.prefix, unit.digest) for unit in gone if unit.whole}
    paths = {
        (unit.prefix, unit.digest, path) for unit in gone if not unit.whole for path in unit.paths
    }
    return tuple(
        replace(
            item,
            files=tuple(
                file for file in item.files if (item.prefix, item.digest, file.path) not in paths
            ),
        )
        for item in revisions
        if (item.prefix, item.digest) not in whole
    )


def _unfit(shelf: Shelf, arrival: Arrival, can_go: Freed) -> NoFit:
    return NoFit(
        prefix=arrival.prefix,
        reason=refusal(
            arrival.prefix,
            shelf.folder,
            replace(shelf.demand, needed=arrival.size_bytes),
            can_go=can_go,
            revisions=shelf.revisions,
            pins=shelf.pins,
        ),
    )
