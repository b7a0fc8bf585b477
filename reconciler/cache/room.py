"""Makes room for downloads, and keeps what they were promised."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from reconciler.cache.amounts import human
from reconciler.cache.budget import Budget, headroom_bytes
from reconciler.cache.demand import Demand, refusal
from reconciler.cache.eviction import Freed, choose_evictions
from reconciler.cache.foresight import Arrival, Shelf, foresee
from reconciler.cache.inventory import inventory
from reconciler.cache.layout import Layout
from reconciler.cache.news import News
from reconciler.cache.partial import remove_others
from reconciler.cache.pin_board import PinBoard
from reconciler.cache.pins import Holding, Pins
from reconciler.cache.reservations import Reservation, Reservations
from reconciler.cache.store import StoredObject
from reconciler.cache.sweep import Order, sweep
from reconciler.cache.usage import Usage
from reconciler.errors import NoRoom
from reconciler.plan.evictions import Evictions


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What is to be fetched of a model. `besides`: what that needs anyhow, whatever it gave up."""

    model: Holding
    items: Sequence[StoredObject]
    besides: tuple[Holding, ...] = ()
    cancelled: Callable[[], bool] = lambda: False


class Room:
    """The disk under one cache. Any thread may ask; one makes room at a time."""

    def __init__(
        self,
        layout: Layout,
        usage: Usage,
        board: PinBoard,
        budget: Budget | None,
        tell: Callable[[News], None],
    ) -> None:
        self._layout = layout
        self._usage = usage
        self._board = board
        self._budget = budget
        self._tell = tell
        self._making = threading.Lock()
        self._reservations = Reservations(layout)
        self._promises: list[Reservation] = []
        self._disk_bytes = 0

    @property
    def budget_bytes(self) -> int | None:
        """None: there is no budget. Asks no disk, which may hang."""
        return None if self._budget is None else self._budget.of(self._disk_bytes)

    def look_at_disk(self) -> None:
        """See how large it is. Raises OSError."""
        self._disk_bytes = shutil.disk_usage(self._layout.models).total

    @contextmanager
    def reserved(self, coming: Coming) -> Iterator[None]:
        """Room for files of a model, for as long as the block lasts.

        The prefix's lock is held. What no model needs is evicted for it, the least recently used
        first. Raises NoRoom with the numbers where that is not enough; nothing is evicted then.
        """
        promise = Reservation(
            owner=self._board.owner,
            prefix=coming.model.prefix,
            digest=coming.model.digest,
            items=tuple(coming.items),
        )
        with ExitStack() as stack:
            with self._making:
                if promise.unwritten(self._layout) > 0:
                    stack.enter_context(self._decided(coming, promise))
                self._promises.append(promise)
                stack.callback(self._promises.remove, promise)
            yield

    @contextmanager
    def _decided(self, coming: Coming, promise: Reservation) -> Iterator[None]:
        """Other agents decide before us, or after us with what we have reserved."""
        with ExitStack() as stack:
            with self._reservations.deciding(coming.cancelled):
                self._make(coming, promise)
                stack.enter_context(self._reservations.told(promise))
            yield

    def relieve(self) -> None:
        """The disk is so full that nothing can be written: give back what must stay free.

        Raises OSError.
        """
        with self._making:
            disk = shutil.disk_usage(self._layout.models)
            missing = Freed(disk=headroom_bytes(disk.total) - disk.free)
            order = Order(why=f"{self._layout.models} is full")
            swept = sweep(
                self._layout, self._board, lambda there: choose_evictions(there, missing), order
            )
            for told in swept.evicted:
                self._tell(told)

    def _make(self, coming: Coming, promise: Reservation) -> None:
        """What downloads that were cut off have left goes last: it is wanted, as a rule."""
        if self._demand(promise).missing == Freed():
            return
        if self._evict(coming, promise) is None:
            return
        promised = (*self._promises, *self._reservations.of_others(), promise)
        items = [item for each in promised for item in each.items]
        remove_others(self._layout.partials, items)
        no_room = self._evict(coming, promise)
        if no_room is not None:
            raise no_room

    def _evict(self, coming: Coming, promise: Reservation) -> NoRoom | None:
        """Why that cannot be enough; nothing went then."""
        model = coming.model
        demand = self._demand(promise)
        if demand.missing == Freed():
            return None
        order = Order(
            why=f"{model.prefix} needs {human(demand.needed)}",
            fetching=model,
            besides=coming.besides,
        )
        swept = sweep(
            self._layout,
            self._board,
            lambda there: choose_evictions(there, demand.missing),
            order,
            cancelled=coming.cancelled,
        )
        self._usage.measure()
        if not swept.choice.enough:
            said = refusal(
                model.prefix,
                self._layout.models,
                demand,
                can_go=swept.choice.freed,
                revisions=swept.revisions,
                pins=swept.pins,
            )
            return NoRoom(said, enough_from=swept.enough_from)
        for told in swept.evicted:
            self._tell(told)
        return None

    def foresee(self, arrivals: Sequence[Arrival], own: Pins) -> Evictions:
        """What these downloads would evict, if the owner needed `own`. Blocking; evicts nothing.

        What is under way already of the same prefixes counts once. Raises OSError.
        """
        coming = {each.prefix for each in arrivals}
        with self._making, self._reservations.deciding(lambda: False):
            besides = [each for each in self._promises if each.prefix not in coming]
            demand = self._demand(None, besides)
            kept = (*self._promises, *self._reservations.of_others())
            items = [item for each in kept for item in each.items]
            cut_off = remove_others(self._layout.partials, items, dry=True)
        _, others = self._board.parted_pins()
        shelf = Shelf(
            revisions=inventory(self._layout),
            pins=own | others,
            uses=self._board.last_uses(),
            demand=demand,
            cut_off=sum(each.size_bytes for each in cut_off),
            folder=str(self._layout.models),
        )
        return foresee(shelf, arrivals)

    def _demand(
        self, promise: Reservation | None, promises: Sequence[Reservation] | None = None
    ) -> Demand:
        """What gets its place on the disk meanwhile counts twice rather than not at all."""
        needed = promise.unwritten(self._layout) if promise is not None else 0
        made = self._promises if promises is None else promises
        promised = sum(each.unwritten(self._layout) for each in made)
        others = self._reservations.of_others()
        elsewhere = [(each, each.unwritten(self._layout)) for each in others]
        if self._budget is not None:
            self._usage.measure()
        disk = shutil.disk_usage(self._layout.models)
        self._disk_bytes = disk.total
        return Demand(
            needed=needed,
            promised=promised,
            elsewhere=[
                (f"{each.prefix} {each.owner.where}", size) for each, size in elsewhere if size
            ],
            free=disk.free,
            headroom=headroom_bytes(disk.total),
            used=self._usage.bytes,
            budget=self.budget_bytes,
        )
