"""Writes a small object of a bucket where it still is what was read: two writers lose nothing.

A store that honours conditions refuses what comes too late (AWS, MinIO, Ceph). One that passes
them over, or answers 501, shows it at an object of our own; there writers take turns, and each
looks again after it has written.
"""

import secrets
from dataclasses import dataclass
from io import BytesIO

from minio import Minio
from minio.error import InvalidResponseError, S3Error, ServerError

from reconciler.hub.catalog import LIMIT_BYTES
from reconciler.hub.s3_errors import S3_FAILURES
from reconciler.hub.turns import TURNS, turn

_FAILED = 412
_TOO_LATE = (404, 409, _FAILED)
"""404: it is gone. 409: another conditional write was under way."""
_UNKNOWN_CONDITION = (400, 405, 501)
_NEVER = {"If-Match": '"0"', "If-None-Match": "*"}
"""Conditions that do not hold for an object that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """`etag`: as the store writes it, quotes and all."""

    content: bytes | None
    etag: str | None = None

    @property
    def condition(self) -> dict[str, str]:
        """Under which it is still this; none where the store names no ETag."""
        if self.content is None:
            return {"If-None-Match": "*"}
        return {"If-Match": self.etag} if self.etag else {}


class S3Swap:
    """Of one bucket. Raises what minio's client raises."""

    def __init__(self, client: Minio, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._honoured: dict[str, bool] = {}

    def __call__(self, folder: str, key: str, content: bytes, seen: bytes | None) -> bool:
        """Whether it was still `seen`, and is `content` now. `folder`: the prefix's, with its /."""
        found = self._read(folder + key)
        if found.content != seen:
            return False
        if self._honours(folder, found.condition):
            refused = self._write(folder + key, content, found.condition)
            if refused != _FAILED or self._read(folder + key) != found:
                return refused is None
            self._honoured |= dict.fromkeys(found.condition, False)  # it refuses what holds, too
        with turn(_Tickets(self._client, self._bucket, folder + TURNS)):
            if self._read(folder + key).content != seen:
                return False
            self._write(folder + key, content, {})
            return self._read(folder + key).content == content

    def _honours(self, folder: str, condition: dict[str, str]) -> bool:
        """Asked once for each kind of condition."""
        for name in condition.keys() - self._honoured.keys():
            probe = folder + TURNS + secrets.token_hex(8)
            self._write(probe, b"", {})
            try:
                self._honoured[name] = self._write(probe, b"", {name: _NEVER[name]}) is not None
            except S3_FAILURES as exc:
                if _status(exc) not in _UNKNOWN_CONDITION:
                    raise
                self._honoured[name] = False
            finally:
                self._remove(probe)
        return bool(condition) and all(self._honoured[name] for name in condition)

    def _read(self, name: str) -> _Found:
        try:
            response = self._client.get_object(bucket_name=self._bucket, object_name=name)
        except S3_FAILURES as exc:
            if "NoSuchKey" in str(exc):  # rclone sends its XML as text
                return _Found(content=None)
            raise
        try:
            content = response.read(LIMIT_BYTES + 1, decode_content=False)
            return _Found(content=content, etag=response.headers.get("ETag"))
        finally:
            response.close()
            response.release_conn()

    def _write(self, name: str, content: bytes, condition: dict[str, str]) -> int | None:
        """None: it is written. The status with which the store says that it came too late."""
        try:  # minio's public call takes no conditions
            self._client._put_object(self._bucket, name, content, headers=dict(condition))
        except S3_FAILURES as exc:
            if not condition or _status(exc) not in _TOO_LATE:
                raise
            return _status(exc)
        return None

    def _remove(self, name: str) -> None:
        self._client.remove_object(bucket_name=self._bucket, object_name=name)


@dataclass(frozen=True, slots=True)
class _Tickets:
    """Those of one prefix. `folder`: where they are, with its /."""

    client: Minio
    bucket: str
    folder: str

    def write(self, ticket: str) -> None:
        name = self.folder + ticket
        self.client.put_object(self.bucket, name, BytesIO(), 0)

    def remove(self, ticket: str) -> None:
        self.client.remove_object(self.bucket, self.folder + ticket)

    def listed(self) -> frozenset[str]:
        found = self.client.list_objects(self.bucket, prefix=self.folder)
        names = (each.object_name for each in found)
        return frozenset(name.removeprefix(self.folder) for name in names if name is not None)


def _status(exc: Exception) -> int:
    """That the store has answered with; 0: it has not."""
    if isinstance(exc, S3Error):
        return int(exc.response.status)
    if isinstance(exc, InvalidResponseError):
        return exc._code  # which it says in its text, and nowhere else
    return exc.status_code if isinstance(exc, ServerError) else 0
