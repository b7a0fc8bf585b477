"""Makes room for downloads, and keeps what they were promised."""

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.cache.amounts import human
from reconciler.cache.budget import Budget, headroom_bytes
from reconciler.cache.evict import free_prefixes, remove_aside, set_aside
from reconciler.cache.eviction import Choice, Freed, Stock, Unit, choose_evictions, freed_by
from reconciler.cache.inventory import StoredRevision, inventory, stock
from reconciler.cache.layout import Layout
from reconciler.cache.news import FilesEvicted, News
from reconciler.cache.partial import allocated_bytes, remove_others
from reconciler.cache.pin_board import PinBoard
from reconciler.cache.pins import Pins
from reconciler.cache.store import StoredObject
from reconciler.cache.usage import Usage
from reconciler.errors import Transient

_TOLD_MODELS = 5


@dataclass(frozen=True, slots=True)
class _Promise:
    """A download under way. `folder`: where its files get their names."""

    folder: Path
    items: tuple[StoredObject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Bytes that a download and others still write, and what there is for them.

    `budget` None: there is none. `used`: by the cache. `headroom`: what must stay free.
    """

    needed: int
    promised: int
    free: int
    headroom: int
    used: int
    budget: int | None

    @property
    def missing(self) -> Freed:
        """What has to go first."""
        wanted = self.needed + self.promised
        over = 0 if self.budget is None else max(0, self.used + wanted - self.budget)
        return Freed(cache=over, disk=max(0, wanted + self.headroom - self.free))


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
        self._promises: list[_Promise] = []

    @property
    def budget_bytes(self) -> int | None:
        """None: there is no budget. Reads how large the disk is."""
        if self._budget is None:
            return None
        return self._budget.of(shutil.disk_usage(self._layout.models).total)

    @contextmanager
    def reserved(
        self,
        prefix: str,
        digest: str,
        items: Sequence[StoredObject],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[None]:
        """Room for all of these files, for as long as the block lasts.

        The prefix's lock is held. What no model needs is evicted for it, the least recently used
        first. Raises Transient with the numbers where that is not enough; nothing is evicted then.
        """
        promise = _Promise(self._layout.folder(prefix, digest), tuple(items))
        with self._making:
            self._make(prefix, digest, promise, cancelled)
            self._promises.append(promise)
        try:
            yield
        finally:
            self._promises.remove(promise)

    def _make(
        self, prefix: str, digest: str, promise: _Promise, cancelled: Callable[[], bool]
    ) -> None:
        if self._demand(promise).missing == Freed():
            return
        if self._demand(promise).missing.disk:
            items = [item for each in (*self._promises, promise) for item in each.items]
            remove_others(self._layout.partials, items)
        self._usage.measure()
        demand = self._demand(promise)
        if demand.missing == Freed():
            return
        with self._board.locked(cancelled):
            removed = self._evict(prefix, digest, demand)
        for aside in removed:
            remove_aside(aside)
        self._usage.measure()

    def _evict(self, prefix: str, digest: str, demand: Demand) -> list[Path | None]:
        pins = self._board.pins()
        revisions = inventory(self._layout)
        others = {item.prefix for item in revisions} - {prefix}
        with free_prefixes(self._layout, sorted(others)) as busy:
            there = stock(
                revisions, pins, self._board.last_uses(), busy=busy, fetching=(prefix, digest)
            )
            choice = choose_evictions(there, demand.missing)
            if not choice.enough:
                raise Transient(self._refusal(prefix, demand, choice, pinned_by(revisions, pins)))
            why = f"{prefix} needs {human(demand.needed)}"
            removed = [set_aside(self._layout, unit) for unit in choice.units]
        self._board.forget((unit.prefix, unit.digest) for unit in choice.units if unit.whole)
        for told in evicted(there, choice.units, why):
            self._tell(told)
        return removed

    def _demand(self, promise: _Promise) -> Demand:
        disk = shutil.disk_usage(self._layout.models)
        return Demand(
            needed=self._unwritten(promise),
            promised=sum(map(self._unwritten, self._promises)),
            free=disk.free,
            headroom=headroom_bytes(disk.total),
            used=self._usage.bytes,
            budget=None if self._budget is None else self._budget.of(disk.total),
        )

    def _unwritten(self, promise: _Promise) -> int:
        """Bytes of a download that have no place on the disk yet."""
        return sum(
            item.size_bytes - allocated_bytes(self._layout.partials, item)
            for item in promise.items
            if not _is_there(promise.folder / item.path, item.size_bytes)
        )

    def _refusal(self, prefix: str, demand: Demand, choice: Choice, by: dict[str, int]) -> str:
        """The numbers, and who holds what."""
        said = [
            f"cannot fetch {prefix}: {human(demand.needed)} are needed and {human(demand.free)} "
            f"are free in {self._layout.models}, of which {human(demand.headroom)} stay free"
        ]
        if demand.promised:
            said.append(f"downloads under way still need {human(demand.promised)}")
        if demand.budget is not None:
            said.append(f"the cache has {human(demand.used)} of its {human(demand.budget)}")
        can_go = max(choice.freed.cache, choice.freed.disk)
        said.append(f"{human(can_go)} can be evicted" if can_go else "nothing can be evicted")
        if by:
            most = sorted(by.items(), key=lambda each: (-each[1], each[0]))
            told = [f"{model} ({human(size)})" for model, size in most[:_TOLD_MODELS]]
            more = [f"and {len(most) - _TOLD_MODELS} more"] if len(most) > _TOLD_MODELS else []
            said.append(f"pinned by {', '.join([*told, *more])}")
        return "; ".join(said)


def _is_there(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat().st_size == size_bytes
    except OSError:
        return False


def evicted(there: Stock, units: Sequence[Unit], why: str) -> tuple[FilesEvicted, ...]:
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


def pinned_by(revisions: Sequence[StoredRevision], pins: Pins) -> dict[str, int]:
    """Bytes that each model needs; those of files that several need count for each."""
    found: dict[str, int] = {}
    for item in revisions:
        for file in item.files:
            for model in pins.models(item.prefix, item.digest, file.path):
                found[model] = found.get(model, 0) + file.size_bytes
    return found
