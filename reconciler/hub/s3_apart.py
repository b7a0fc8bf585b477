"""An S3 store for a process with an event loop: large objects are fetched in another process."""

from collections.abc import Callable

from reconciler.hub.objects import HubObject, Journal, ObjectRef
from reconciler.hub.rate_limit import RateLimit
from reconciler.hub.s3 import S3Store
from reconciler.hub.s3_settings import S3Settings
from reconciler.hub.transfer_process import TransferProcess

_LARGE_BYTES = 1 << 20
"""Below it, a process costs more than it spares."""


class S3StoreApart:
    """As S3Store. `bytes_per_second`: of the node; None: no limit."""

    reads_at_once = S3Store.reads_at_once

    def __init__(self, settings: S3Settings, *, bytes_per_second: float | None = None) -> None:
        self._store = S3Store(settings, rate=RateLimit(bytes_per_second))
        self._apart = TransferProcess(settings, bytes_per_second)
        self.location = self._store.location

    def close(self) -> None:
        self._store.close()

    def objects(self, prefix: str, digest: str | None = None) -> tuple[HubObject, ...]:
        """As S3Store.objects."""
        return self._store.objects(prefix, digest)

    def prefixes(self) -> tuple[str, ...]:
        """Every prefix that the hub holds, sorted."""
        return self._store.prefixes()

    def read(
        self,
        stored: ObjectRef,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        journal: Journal | None = None,
    ) -> None:
        """As S3Store.read."""
        if stored.size_bytes < _LARGE_BYTES:
            self._store.read(stored, fd, on_bytes=on_bytes, cancelled=cancelled, journal=journal)
            return
        self._apart.read(
            stored,
            fd,
            doing=f"cannot fetch {stored.key} from {self.location}",
            on_bytes=on_bytes,
            cancelled=cancelled,
            journal=journal,
        )
