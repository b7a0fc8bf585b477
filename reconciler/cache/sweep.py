"""Evicts what no agent needs: looks, chooses and removes while nobody can say anything new."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from reconciler.cache.evict import free_prefixes, remove_aside, set_aside
from reconciler.cache.eviction import Choice, Stock, Unit, freed_by
from reconciler.cache.inventory import LastUses, StoredRevision, inventory, stock
from reconciler.cache.layout import Layout
from reconciler.cache.news import FilesEvicted
from reconciler.cache.pin_board import PinBoard
from reconciler.cache.pins import Holding, Pins, pins_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`why`: a clause for operators. `also_pinned`: beside what agents say.

    `fetching`: what it is for, which stays, too; the lock of its prefix is held already. `besides`:
    what the model of that needs anyhow. `dry`: choose only.
    """

    why: str
    also_pinned: Pins = field(default_factory=Pins)
    fetching: Holding | None = None
    besides: tuple[Holding, ...] = ()
    dry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What was there before, what was chosen, and what has gone.

    `enough_from`: where the choice is not enough for what is fetched, the models of the owner of
    which each could make it so, if it needed nothing else.
    """

    revisions: tuple[StoredRevision, ...]
    pins: Pins
    choice: Choice
    evicted: tuple[FilesEvicted, ...]
    enough_from: frozenset[str] = frozenset()


def sweep(
    layout: Layout,
    board: PinBoard,
    choose: Callable[[Stock], Choice],
    order: Order,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> Swept:
    """Remove what `choose` picks of what nobody needs. A prefix that is worked on is left alone.

    Blocking. Raises OSError; Transient when cancelled.
    """
    coming = () if order.fetching is None else (order.fetching,)
    with board.locked(cancelled):
        own, others = board.parted_pins()
        pins = own | others | order.also_pinned
        revisions = inventory(layout)
        prefixes = {item.prefix for item in revisions} - {each.prefix for each in coming}
        with free_prefixes(layout, sorted(prefixes)) as busy:
            floor = _Floor(revisions=revisions, uses=board.last_uses(), busy=busy, coming=coming)
            there = floor.stock(pins)
            choice = choose(there)
            enough_from = frozenset(
                model
                for model in (own.all_models() if coming and not choice.enough else ())
                if choose(floor.stock(_given_up(own, model, order) | others)).enough
            )
            aside = [] if order.dry else [set_aside(layout, unit) for unit in choice.units]
    for path in aside:  # which may take long, and give the room that a note takes
        remove_aside(path)
    if aside:
        with board.locked():
            board.forget((unit.prefix, unit.digest) for unit in choice.units if unit.whole)
    return Swept(
        revisions=revisions,
        pins=pins,
        choice=choice,
        evicted=_evicted(there, choice.units, order.why),
        enough_from=enough_from,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Floor:
    """What stands there while nobody can change it. `coming`: what stays, whatever is pinned."""

    revisions: tuple[StoredRevision, ...]
    uses: LastUses
    busy: Collection[str]
    coming: tuple[Holding, ...]

    def stock(self, pins: Pins) -> Stock:
        staying = pins | pins_of([("", self.coming)])
        return stock(self.revisions, staying, self.uses, busy=self.busy)


def _given_up(own: Pins, model: str, order: Order) -> Pins:
    """What the owner would need then."""
    return own.without(model) | order.also_pinned | pins_of([(model, order.besides)])


def _evicted(there: Stock, units: Sequence[Unit], why: str) -> tuple[FilesEvicted, ...]:
    """One for each unit; a file that several of them share is told with the last."""
    told = []
    for number, unit in enumerate(units):
        before, after = freed_by(there, units[:number]), freed_by(there, units[: number + 1])
        told.append(
            FilesEvicted(
                prefix=unit.prefix,
                digest=unit.digest,
                files=len(unit.paths),
                size_bytes=after.cache - before.cache,
                last_used=unit.last_used,
                why=why,
            )
        )
    return tuple(told)
