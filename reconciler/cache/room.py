"""Makes room for downloads, and keeps what they were promised."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from reconciler.cache.amounts import human
from reconciler.cache.budget import Budget, headroom_bytes
from reconciler.cache.eviction import Freed, choose_evictions
from reconciler.cache.inventory import StoredRevision
from reconciler.cache.layout import Layout
from reconciler.cache.news import News
from reconciler.cache.partial import remove_others
from reconciler.cache.pin_board import PinBoard
from reconciler.cache.pins import Holding, Pins
from reconciler.cache.reservations import Reservation, Reservations
from reconciler.cache.store import StoredObject
from reconciler.cache.sweep import Order, Swept, sweep
from reconciler.cache.usage import Usage
from reconciler.errors import NoRoom

_TOLD_MODELS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Bytes that a download and others still write, and what there is for them.

    `promised`: to others of this agent; `elsewhere`: by other agents that live. `budget` None:
    there is none. `used`: by the cache. `headroom`: what must stay free.
    """

    needed: int
    promised: int
    elsewhere: Sequence[tuple[Reservation, int]]
    free: int
    headroom: int
    used: int
    budget: int | None

    @property
    def missing(self) -> Freed:
        """What has to go first."""
        wanted = self.needed + self.promised + sum(size for _, size in self.elsewhere)
        over = 0 if self.budget is None else max(0, self.used + wanted - self.budget)
        return Freed(cache=over, disk=max(0, wanted + self.headroom - self.free))


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
        refusal = self._evict(coming, promise)
        if refusal is not None:
            raise refusal

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
            refusal = self._refusal(model.prefix, demand, swept)
            return NoRoom(refusal, enough_from=swept.enough_from)
        for told in swept.evicted:
            self._tell(told)
        return None

    def _demand(self, promise: Reservation) -> Demand:
        """What gets its place on the disk meanwhile counts twice rather than not at all."""
        needed = promise.unwritten(self._layout)
        promised = sum(each.unwritten(self._layout) for each in self._promises)
        others = self._reservations.of_others()
        elsewhere = [(each, each.unwritten(self._layout)) for each in others]
        if self._budget is not None:
            self._usage.measure()
        disk = shutil.disk_usage(self._layout.models)
        self._disk_bytes = disk.total
        return Demand(
            needed=needed,
            promised=promised,
            elsewhere=[(each, size) for each, size in elsewhere if size],
            free=disk.free,
            headroom=headroom_bytes(disk.total),
            used=self._usage.bytes,
            budget=self.budget_bytes,
        )

    def _refusal(self, prefix: str, demand: Demand, swept: Swept) -> str:
        """The numbers, and who holds what."""
        said = [
            f"cannot fetch {prefix}: {human(demand.needed)} are needed and {human(demand.free)} "
            f"are free in {self._layout.models}, of which {human(demand.headroom)} stay free"
        ]
        if demand.promised:
            said.append(f"downloads under way still need {human(demand.promised)}")
        if demand.elsewhere:
            said.append(f"other agents' downloads still need {_told(demand.elsewhere)}")
        if demand.budget is not None:
            said.append(f"the cache has {human(demand.used)} of its {human(demand.budget)}")
        can_go = max(swept.choice.freed.cache, swept.choice.freed.disk)
        said.append(f"{human(can_go)} can be evicted" if can_go else "nothing can be evicted")
        if by := pinned_by(swept.revisions, swept.pins):
            most = sorted(by.items(), key=lambda each: (-each[1], each[0]))
            told = [f"{model} ({human(size)})" for model, size in most[:_TOLD_MODELS]]
            more = [f"and {len(most) - _TOLD_MODELS} more"] if len(most) > _TOLD_MODELS else []
            said.append(f"pinned by {', '.join([*told, *more])}")
        return "; ".join(said)


def _told(reserved: Sequence[tuple[Reservation, int]]) -> str:
    return ", ".join(
        f"{human(size)} for {each.prefix} {each.owner.where}" for each, size in reserved
    )


def pinned_by(revisions: Sequence[StoredRevision], pins: Pins) -> dict[str, int]:
    """Bytes that each model needs; those of files that several need count for each."""
    found: dict[str, int] = {}
    for item in revisions:
        for file in item.files:
            for model in pins.models(item.prefix, item.digest, file.path):
                found[model] = found.get(model, 0) + file.size_bytes
    return found
