"""Writes to an S3 bucket: plain S3, path style; conditions only where the store honours them."""

import hashlib
import re
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO, cast

from minio import Minio
from minio.error import InvalidResponseError, S3Error, ServerError

from reconciler.errors import Transient
from reconciler.hub.local_files import read_block
from reconciler.hub.objects import checked_prefix
from reconciler.hub.s3_connection import connect
from reconciler.hub.s3_prefixes import prefixes_in
from reconciler.hub.s3_settings import S3Settings
from reconciler.hub.s3_swap import S3Swap
from reconciler.hub.writable import Stored, Unfinished, Watch

_PART_BYTES = 8 * 1024 * 1024
_MAX_PARTS = 10_000
_PARALLEL_PARTS = 4
_READ_BYTES = 1024 * 1024
_MD5 = re.compile(r"[0-9a-f]{32}")
_MD5_OF_PARTS = re.compile(r"[0-9a-f]{32}-(\d+)")


class S3Writer:
    """A `WritableHub` in a bucket; for threads, not for forks.

    Each part is signed with its SHA-256 (http) or sent with its MD5 (https), so the store refuses
    what was damaged on the way.
    """

    def __init__(self, settings: S3Settings) -> None:
        connection = connect(settings)
        self.location = connection.location
        self._client: Minio = connection.client
        self._explaining = connection.explaining
        self._pool = connection.pool
        self._bucket = settings.bucket
        self._base = f"{settings.base}/" if settings.base else ""
        self._swap = S3Swap(self._client, settings.bucket)

    def close(self) -> None:
        self._pool.clear()

    def prefixes(self) -> tuple[str, ...]:
        with self._explaining(f"cannot list {self.location}"):
            return prefixes_in(self._client, self._bucket, self._base)

    def stored(self, prefix: str) -> tuple[Stored, ...]:
        folder = self._folder(prefix)
        with self._explaining(f"cannot list {prefix} in {self.location}"):
            found = [
                Stored(
                    key=item.object_name.removeprefix(folder),
                    size_bytes=item.size or 0,
                    modified_at=item.last_modified.timestamp() if item.last_modified else 0.0,
                    etag=(item.etag or "").strip('"'),
                )
                for item in self._client.list_objects(
                    bucket_name=self._bucket, prefix=folder, recursive=True
                )
                if item.object_name is not None
            ]
        return tuple(sorted(found, key=lambda each: each.key))

    def load(self, prefix: str, key: str, limit_bytes: int) -> bytes:
        content = bytearray()
        for piece in self.read(prefix, key):
            content += piece
            if len(content) >= limit_bytes:
                break
        return bytes(content[:limit_bytes])

    def read(self, prefix: str, key: str) -> Iterator[bytes]:
        with self._explaining(f"cannot read {prefix}/{key} in {self.location}"):
            response = self._client.get_object(
                bucket_name=self._bucket, object_name=self._folder(prefix) + key
            )
            try:
                while piece := response.read(_READ_BYTES, decode_content=False):
                    yield piece
            finally:
                response.close()
                response.release_conn()

    def save(self, prefix: str, key: str, content: bytes) -> None:
        nobody = Watch(on_bytes=lambda _count: None, check=lambda: None)
        self.upload(prefix, key, BytesIO(content), len(content), nobody)

    def swap(self, prefix: str, key: str, content: bytes, seen: bytes | None) -> bool:
        with self._explaining(f"cannot write {prefix}/{key} to {self.location}"):
            return self._swap(self._folder(prefix), key, content, seen)

    def upload(self, prefix: str, key: str, source: BinaryIO, size_bytes: int, watch: Watch) -> int:
        doing = f"cannot write {prefix}/{key} to {self.location}"
        part_bytes = _part_bytes(size_bytes)
        measured = _Measured(source, watch, is_one_part=size_bytes <= part_bytes)
        with self._explaining(doing):
            try:
                result = self._client.put_object(
                    bucket_name=self._bucket,
                    object_name=self._folder(prefix) + key,
                    data=cast(BinaryIO, measured),
                    length=size_bytes,
                    part_size=part_bytes,
                    num_parallel_uploads=_PARALLEL_PARTS,
                )
            except OSError as exc:  # minio's own, for a stream that ends early
                raise Transient(f"{doing}: the file became shorter meanwhile") from exc
        etag = result.etag or ""
        encrypted = "x-amz-server-side-encryption" in (result.http_headers or {})
        if measured.is_one_part and _MD5.fullmatch(etag) and not encrypted and etag != measured.md5:
            raise Transient(f"{doing}: the store has other bytes than were sent; push again")
        return measured.crc32

    def holds(self, stored: Stored, prefix: str, source: BinaryIO, watch: Watch) -> bool:
        parts = _MD5_OF_PARTS.fullmatch(stored.etag)
        if parts is None and not _MD5.fullmatch(stored.etag):
            return False
        part_bytes = _part_bytes(stored.size_bytes) if parts else max(stored.size_bytes, 1)
        digests = list(_md5s(source, part_bytes, watch))
        if parts is None:
            return [stored.etag] == [each.hex() for each in digests]
        together = hashlib.md5(b"".join(digests), usedforsecurity=False).hexdigest()
        return stored.etag == f"{together}-{len(digests)}"

    def delete(self, prefix: str, key: str) -> None:
        with self._explaining(f"cannot remove {prefix}/{key} from {self.location}"):
            self._client.remove_object(
                bucket_name=self._bucket, object_name=self._folder(prefix) + key
            )

    def unfinished(self, prefix: str) -> tuple[Unfinished, ...] | None:
        folder = self._folder(prefix)
        found: list[Unfinished] = []
        key_marker = id_marker = None
        with self._explaining(f"cannot list unfinished uploads of {prefix} in {self.location}"):
            while True:
                try:  # minio has no public call for this
                    page = self._client._list_multipart_uploads(
                        bucket_name=self._bucket,
                        prefix=folder,
                        key_marker=key_marker,
                        upload_id_marker=id_marker,
                    )
                except (S3Error, ServerError, InvalidResponseError) as exc:
                    return () if "NoSuchUpload" in str(exc) else None  # rclone's way to say: none
                found += [
                    Unfinished(
                        key=upload.object_name.removeprefix(folder),
                        started_at=upload.initiated_time.timestamp(),
                        upload_id=upload.upload_id,
                    )
                    for upload in page.uploads
                    if upload.initiated_time and upload.upload_id
                ]
                key_marker, id_marker = page.next_key_marker, page.next_upload_id_marker
                if not page.is_truncated or not key_marker:
                    return tuple(found)

    def discard(self, prefix: str, unfinished: Unfinished) -> None:
        doing = f"cannot abort the upload of {prefix}/{unfinished.key} to {self.location}"
        with self._explaining(doing):
            self._client._abort_multipart_upload(  # nor for this
                self._bucket, self._folder(prefix) + unfinished.key, unfinished.upload_id
            )

    def _folder(self, prefix: str) -> str:
        return f"{self._base}{checked_prefix(prefix)}/"


class _Measured:
    """A file as minio reads it: one part after the other, in one thread.

    `md5`: of the whole, where it is one part; what has several has no MD5 in most stores.
    """

    def __init__(self, source: BinaryIO, watch: Watch, *, is_one_part: bool) -> None:
        self._source = source
        self._watch = watch
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.is_one_part = is_one_part
        self.crc32 = 0

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()

    def read(self, size_bytes: int) -> bytes:
        self._watch.check()
        block = read_block(self._source, size_bytes)
        self.crc32 = zlib.crc32(block, self.crc32)
        if self.is_one_part:
            self._md5.update(block)
        self._watch.on_bytes(len(block))
        return block


def _part_bytes(size_bytes: int) -> int:
    """Of one upload; the same for the same size, so that a store's ETag can be told in advance."""
    mib = 1024 * 1024
    return max(_PART_BYTES, -(-size_bytes // _MAX_PARTS // mib) * mib)


def _md5s(source: BinaryIO, part_bytes: int, watch: Watch) -> Iterator[bytes]:
    """The MD5 of each part; one, of nothing, for an empty file."""
    md5, room, is_first = hashlib.md5(usedforsecurity=False), part_bytes, True
    while block := read_block(source, min(room, _READ_BYTES)):
        watch.check()
        md5.update(block)
        watch.on_bytes(len(block))
        room -= len(block)
        is_first = False
        if room == 0:
            yield md5.digest()
            md5, room = hashlib.md5(usedforsecurity=False), part_bytes
    if is_first or room < part_bytes:
        yield md5.digest()
