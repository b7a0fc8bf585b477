"""A hub in an S3 bucket: plain S3, path style, no vendor's extensions."""

import re
from collections.abc import Callable

from reconciler.hub.connections import Connections
from reconciler.hub.digests import until_it_matches
from reconciler.hub.objects import HubObject, Journal, ObjectRef, checked_prefix
from reconciler.hub.ranged_get import NoRanges, RangedGets
from reconciler.hub.rate_limit import UNLIMITED, RateLimit
from reconciler.hub.revision import files_of_revision
from reconciler.hub.s3_connection import MAX_CONNECTIONS, connect
from reconciler.hub.s3_prefixes import prefixes_in
from reconciler.hub.s3_settings import S3Settings
from reconciler.hub.transfer import Line, Transfer

_MD5 = re.compile(r"[0-9a-f]{32}")


class S3Store:
    """Lists prefixes and reads objects; blocking, for threads. Raises Transient.

    Only what the settings decide, and a prefix that can be none, is Rejected. `rate`: of the node.
    """

    reads_at_once = 8
    """Small files wait for answers most of the time; `Connections` bounds the large ones."""

    def __init__(self, settings: S3Settings, *, rate: RateLimit = UNLIMITED) -> None:
        connection = connect(settings)
        transfers = connect(settings, tries=False)  # they try again themselves, elsewhere in time
        self.location = connection.location
        self._bucket = settings.bucket
        self._base = f"{settings.base}/" if settings.base else ""
        self._client = connection.client
        self._explaining = connection.explaining
        self._pools = (connection.pool, transfers.pool)
        self._line = Line(
            gets=RangedGets(transfers, settings.bucket),
            connections=Connections(MAX_CONNECTIONS),
            rate=rate,
        )

    def close(self) -> None:
        for pool in self._pools:
            pool.clear()

    def objects(self, prefix: str, digest: str | None = None) -> tuple[HubObject, ...]:
        """The model's files, sorted by path; empty where the hub has no such prefix.

        `digest`: of the push that is wanted; None: the one in force.
        """
        return files_of_revision(self, prefix, digest)

    def listing(self, prefix: str) -> tuple[HubObject, ...]:
        """All objects under `prefix`/, the hub's own too, sorted by path."""
        folder = f"{self._base}{checked_prefix(prefix)}/"
        with self._explaining(f"cannot list {prefix} in {self.location}"):
            found = [
                _object(item.object_name, folder, item.size, item.etag)
                for item in self._client.list_objects(
                    bucket_name=self._bucket, prefix=folder, recursive=True
                )
                if item.object_name is not None and not item.object_name.endswith("/")
            ]
        return tuple(sorted(found, key=lambda item: item.path))

    def prefixes(self) -> tuple[str, ...]:
        """Every prefix that the hub holds, sorted."""
        with self._explaining(f"cannot list {self.location}"):
            return prefixes_in(self._client, self._bucket, self._base)

    def read(
        self,
        stored: ObjectRef,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        journal: Journal | None = None,
    ) -> None:
        """Write all of the object's bytes to `fd`; size and digest, where one is known, are right.

        `on_bytes` is told how many of its bytes are there, by one thread at a time, and starts over
        with it. `journal`: what of `fd` is there already. OSError from writing passes as it is.
        """
        doing = f"cannot fetch {stored.key} from {self.location}"

        def fetch() -> bool:
            try:
                transfer = Transfer(self._line, stored, fd, journal, doing=doing)
                matches = transfer.run(on_bytes, cancelled)
            except NoRanges:
                transfer = Transfer(self._line, stored, fd, None, doing=doing)
                matches = transfer.run(on_bytes, cancelled, by_ranges=False)
            if not matches and journal is not None:
                journal.forget()
            return matches

        until_it_matches(fetch, stored, doing=doing)


def _object(key: str, folder: str, size: int | None, etag: str | None) -> HubObject:
    version = (etag or "").strip('"')
    return HubObject(
        path=key.removeprefix(folder),
        key=key,
        size_bytes=size or 0,
        version=version,
        md5=version if _MD5.fullmatch(version) else None,
    )
