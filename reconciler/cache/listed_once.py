"""A hub whose listing of one prefix is at hand: who has looked just now need not look again."""

from collections.abc import Callable, Sequence

from reconciler.cache.store import Journal, Store, StoredObject


class ListedOnce:
    """The listing of what is in force counts once; the hub is asked from then on."""

    def __init__(self, store: Store, prefix: str, listing: Sequence[StoredObject]) -> None:
        self._store = store
        self._prefix = prefix
        self._listing: Sequence[StoredObject] | None = listing

    @property
    def location(self) -> str:
        return self._store.location

    @property
    def reads_at_once(self) -> int:
        return self._store.reads_at_once

    def objects(self, prefix: str, digest: str | None = None) -> Sequence[StoredObject]:
        listing = self._listing
        if listing is None or prefix != self._prefix or digest is not None:
            return self._store.objects(prefix, digest)
        self._listing = None
        return listing

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
        self._store.read(stored, fd, on_bytes=on_bytes, cancelled=cancelled, journal=journal)
