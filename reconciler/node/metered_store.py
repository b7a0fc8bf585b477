"""A hub whose bytes are counted as they come, whatever becomes of the fetch."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from reconciler.cache.store import Journal, Store, StoredObject


class _Meter:
    """Of one read. `here`: the bytes that were there when it was told last."""

    def __init__(self, came: Callable[[int], None]) -> None:
        self._came = came
        self.here = 0

    def note(self, here: int) -> None:
        self._came(max(0, here - self.here))
        self.here = here


class _WatchedJournal:
    """Tells the meter what an earlier try has left: that did not come now."""

    def __init__(self, journal: Journal, size_bytes: int, meter: _Meter) -> None:
        self._journal = journal
        self._size_bytes = size_bytes
        self._meter = meter

    def begin(self, part_bytes: int) -> tuple[int, AbstractSet[int]]:
        part_bytes, there = self._journal.begin(part_bytes)
        begins = (index * part_bytes for index in there)
        self._meter.here = sum(min(part_bytes, self._size_bytes - begin) for begin in begins)
        return part_bytes, there

    def finished(self, index: int) -> None:
        self._journal.finished(index)

    def forget(self) -> None:
        self._journal.forget()


class MeteredStore:
    """`pulled`: told each number of bytes that came, by the threads that fetch."""

    def __init__(self, store: Store, pulled: Callable[[int], None]) -> None:
        self._store = store
        self._pulled = pulled

    @property
    def location(self) -> str:
        return self._store.location

    @property
    def reads_at_once(self) -> int:
        return self._store.reads_at_once

    def objects(self, prefix: str, digest: str | None = None) -> Sequence[StoredObject]:
        return self._store.objects(prefix, digest)

    def prefixes(self) -> Sequence[str]:
        return self._store.prefixes()

    def read(
        self,
        stored: StoredObject,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        journal: Journal | None = None,
    ) -> None:
        meter = _Meter(self._pulled)
        watched = _WatchedJournal(journal, stored.size_bytes, meter) if journal else None

        def note(here: int) -> None:
            meter.note(here)
            on_bytes(here)

        self._store.read(stored, fd, on_bytes=note, cancelled=cancelled, journal=watched)
