"""GET of a range of an object of an S3 store, of one version and no other."""

import contextlib
import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager

from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse, HTTPResponse

from reconciler.errors import Bug, Transient
from reconciler.hub.objects import ObjectRef
from reconciler.hub.s3_connection import S3Connection
from reconciler.hub.s3_errors import S3_FAILURES, is_passing
from reconciler.hub.straight_read import straight_read

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_CHANGED = "it changed while it was fetched"


class Interrupted(Exception):
    """What came is good, the rest must be asked for again. `overloaded`: the store says so."""

    def __init__(self, cause: Transient, *, overloaded: bool = False) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.overloaded = overloaded


class NoRanges(Exception):
    """The store sends whole objects only, whatever is asked for."""


class Body:
    """The bytes of an answer. `etag_is_md5`: an ETag that looks like an MD5 is one."""

    def __init__(self, response: HTTPResponse, doing: str) -> None:
        raw = response._original_response
        if raw is None:
            raise Bug(f"{doing}: the client gave no answer to read from")
        # urllib3's own read() copies each byte twice or more: a quarter of the speed.
        self._raw: http.client.HTTPResponse = raw
        self._straight = straight_read(response, raw)
        self._response = response
        self._doing = doing
        self.etag_is_md5 = not _has_other_etag(response)

    def readinto(self, buffer: memoryview) -> int:
        """As many bytes as fit; fewer, or 0, at the end. Raises Interrupted."""
        try:
            if self._straight is not None and (count := self._straight.readinto(buffer)):
                return count
            return self._raw.readinto(buffer)
        except (TimeoutError, BlockingIOError) as exc:
            raise Interrupted(Transient(f"{self._doing}: no byte came for too long")) from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise Interrupted(Transient(f"{self._doing}: the connection was cut")) from exc

    def interrupt(self) -> None:
        """Let a thread that waits in `readinto` go on, with an error or the end."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # it is at its end already
            self._response.shutdown()

    def is_spent(self) -> bool:
        return self._raw.isclosed()


class RangedGets:
    """Blocking, for threads."""

    def __init__(self, connection: S3Connection, bucket: str) -> None:
        self._client = connection.client
        self._explained = connection.explained
        self._bucket = bucket

    @contextmanager
    def body(self, stored: ObjectRef, offset: int, count: int, doing: str) -> Iterator[Body]:
        """Bytes `offset` to `offset + count`. Raises Transient, Interrupted or NoRanges.

        If-Match alone is not enough: rclone does not heed it, so the answer is compared, too.
        """
        is_whole = offset == 0 and count == stored.size_bytes
        response = self._ask(stored, offset, 0 if is_whole else count, doing)
        body: Body | None = None
        try:
            _check(response, stored, offset, is_whole=is_whole, doing=doing)
            if not isinstance(response, HTTPResponse):
                raise Bug(f"{doing}: the client gave an answer of another kind")
            body = Body(response, doing)
            yield body
        finally:
            if body is None or not body.is_spent():
                response.close()  # what is left of it would be the next answer
            response.release_conn()

    def _ask(self, stored: ObjectRef, offset: int, count: int, doing: str) -> BaseHTTPResponse:
        headers: dict[str, str | list[str] | tuple[str]] = {}
        if stored.version:
            headers["If-Match"] = f'"{stored.version}"'
        try:
            return self._client.get_object(
                bucket_name=self._bucket,
                object_name=stored.key,
                offset=offset,
                length=count,
                request_headers=headers,
            )
        except S3_FAILURES as exc:
            cause = self._explained(exc, doing)
            if isinstance(exc, HTTPError) or is_passing(exc):
                raise Interrupted(cause, overloaded=is_passing(exc)) from exc
            raise cause from exc


def _check(
    response: BaseHTTPResponse, stored: ObjectRef, offset: int, *, is_whole: bool, doing: str
) -> None:
    etag = response.headers.get("ETag", "").strip('"')
    if stored.version and etag and etag != stored.version:
        raise Transient(f"{doing}: {_CHANGED}")
    answered = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if answered is not None:  # rclone says 200 even so
        if answered[2] not in ("*", str(stored.size_bytes)):
            raise Transient(f"{doing}: {_CHANGED}")
        if int(answered[1]) != offset:
            raise NoRanges
        return
    if response.headers.get("Content-Length", str(stored.size_bytes)) != str(stored.size_bytes):
        raise Transient(f"{doing}: {_CHANGED}")
    if not is_whole:
        raise NoRanges


def _has_other_etag(response: BaseHTTPResponse) -> bool:
    """Objects encrypted with KMS or a customer's key have ETags that only look like an MD5."""
    encryption = response.headers.get("x-amz-server-side-encryption", "")
    by_customer = "x-amz-server-side-encryption-customer-algorithm" in response.headers
    return by_customer or encryption.startswith("aws:kms")
