"""A hub in an S3 bucket: plain S3, path style, no vendor's extensions."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from reconciler.errors import Transient, XgenError
from reconciler.hub.objects import HubObject, ObjectRef, checked_prefix
from reconciler.hub.s3_connection import S3Settings, connect
from reconciler.hub.s3_errors import S3_FAILURES, explained

_CHUNK_BYTES = 256 * 1024
_FETCHES = 3
_BARREN_TRIES = 3
_DAMAGED_RETRY_SECONDS = 3600.0
"""Only a push cures it, and each try fetches it three times."""
_MD5 = re.compile(r"[0-9a-f]{32}")


class S3Store:
    """Lists prefixes and reads objects; blocking, for threads. Raises Transient.

    Only what the settings decide, and a prefix that can be none, is Rejected.
    """

    def __init__(self, settings: S3Settings) -> None:
        connection = connect(settings)
        self.location = connection.location
        self._bucket = settings.bucket
        self._base = f"{settings.base}/" if settings.base else ""
        self._client = connection.client
        self._pool = connection.pool

    def close(self) -> None:
        self._pool.clear()

    def objects(self, prefix: str) -> tuple[HubObject, ...]:
        """All objects under `prefix`/, sorted by path; empty where the hub has no such prefix."""
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
            tops = self._folders(self._base)
            found = [folder for top in tops for folder in self._folders(top)]
        return tuple(sorted(key.removeprefix(self._base).rstrip("/") for key in found))

    def _folders(self, below: str) -> list[str]:
        items = self._client.list_objects(bucket_name=self._bucket, prefix=below, recursive=False)
        return [item.object_name for item in items if item.is_dir and item.object_name]

    def read(
        self,
        stored: ObjectRef,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        """Write all of the object's bytes to `fd`, from its position 0; size and MD5 are checked.

        `on_bytes` is told how many bytes of this object are there, and starts over with it.
        OSError from writing passes as it is.
        """
        doing = f"cannot fetch {stored.key} from {self.location}"
        for _ in range(_FETCHES):
            os.ftruncate(fd, 0)
            if self._fetch(stored, fd, doing, on_bytes, cancelled):
                return
        raise Transient(
            f"{doing}: its content does not match its MD5, after {_FETCHES} fetches; push it again",
            retry_after_seconds=_DAMAGED_RETRY_SECONDS,
        )

    def _fetch(
        self,
        stored: ObjectRef,
        fd: int,
        doing: str,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> bool:
        """One fetch, resumed where the connection is cut; False when the MD5 is wrong."""
        done = barren = 0
        expected = stored.md5
        md5 = hashlib.md5(usedforsecurity=False)
        while done < stored.size_bytes:
            before = done
            cause = "the connection was cut"
            with self._body(stored, done, doing) as body:
                if _etag_is_no_md5(body):
                    expected = None
                try:
                    while chunk := body.read(_CHUNK_BYTES, decode_content=False):
                        if cancelled():
                            raise Transient(f"{doing}: it is no longer wanted")
                        if done + len(chunk) > stored.size_bytes:
                            raise Transient(f"{doing}: it changed while it was fetched")
                        _write(fd, chunk, done)
                        done += len(chunk)
                        if expected is not None:
                            md5.update(chunk)
                        on_bytes(done)
                except HTTPError as exc:
                    cause = str(explained(exc, "the connection was cut"))
            barren = 0 if done > before else barren + 1
            if barren == _BARREN_TRIES:
                raise Transient(f"{doing}: {cause}, at {done} of {stored.size_bytes} bytes")
        return expected is None or md5.hexdigest() == expected

    @contextmanager
    def _body(self, stored: ObjectRef, offset: int, doing: str) -> Iterator[BaseHTTPResponse]:
        """The answer with the object's bytes from `offset` on, of this version and no other."""
        headers: dict[str, str | list[str] | tuple[str]] = {}
        if stored.version:
            headers["If-Match"] = f'"{stored.version}"'
        with self._explaining(doing):
            response = self._client.get_object(
                bucket_name=self._bucket,
                object_name=stored.key,
                offset=offset,
                request_headers=headers,
            )
        try:
            etag = response.headers.get("ETag", "").strip('"')  # rclone does not heed If-Match
            if stored.version and etag and etag != stored.version:
                raise Transient(f"{doing}: it changed while it was fetched")
            answered = response.headers.get("Content-Range", "")  # rclone says 200, not 206
            if offset and not answered.startswith(f"bytes {offset}-"):
                raise Transient(f"{doing}: the store cannot continue after a cut")
            yield response
        finally:
            response.close()
            response.release_conn()

    @contextmanager
    def _explaining(self, doing: str) -> Iterator[None]:
        try:
            yield
        except XgenError:
            raise
        except S3_FAILURES as exc:
            raise explained(exc, doing) from exc


def _object(key: str, folder: str, size: int | None, etag: str | None) -> HubObject:
    version = (etag or "").strip('"')
    return HubObject(
        path=key.removeprefix(folder),
        key=key,
        size_bytes=size or 0,
        version=version,
        md5=version if _MD5.fullmatch(version) else None,
    )


def _etag_is_no_md5(response: BaseHTTPResponse) -> bool:
    """Objects encrypted with KMS or a customer's key have ETags that only look like an MD5."""
    encryption = response.headers.get("x-amz-server-side-encryption", "")
    by_customer = "x-amz-server-side-encryption-customer-algorithm" in response.headers
    return by_customer or encryption.startswith("aws:kms")


def _write(fd: int, chunk: bytes, offset: int) -> None:
    view = memoryview(chunk)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written
