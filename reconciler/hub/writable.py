"""A hub that can be written to, as pushes, checks and clean-ups see it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One object under a prefix. `key`: relative to the prefix.

    `modified_at`: seconds since 1970, by the store's clock. `etag`: "" where the store has none.
    """

    key: str
    size_bytes: int
    modified_at: float
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What a writer that was killed has left half done. `key`: relative to the prefix.

    `upload_id`: the store's name for a multipart upload; "" for a temporary file.
    """

    key: str
    started_at: float
    upload_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What goes with a long read or write, from any thread.

    `on_bytes` is told of each piece, how many bytes it had. `check` raises to end it.
    """

    on_bytes: Callable[[int], None]
    check: Callable[[], None]


class WritableHub(Protocol):
    """Blocking, for threads. Keys are relative to the prefix. Raises Transient, or Rejected for
    settings and prefixes that cannot be."""

    location: str

    def prefixes(self) -> tuple[str, ...]:
        """Every prefix that the hub holds, sorted."""

    def stored(self, prefix: str) -> tuple[Stored, ...]:
        """All that is whole under `prefix`/, sorted by key; never of a neighbour's."""

    def load(self, prefix: str, key: str, limit_bytes: int) -> bytes:
        """A small object, or its first bytes where it is larger."""

    def read(self, prefix: str, key: str) -> Iterator[bytes]:
        """An object's content, piece by piece."""

    def save(self, prefix: str, key: str, content: bytes) -> None:
        """Write a small object; readers see the old one or the new one, whole."""

    def swap(self, prefix: str, key: str, content: bytes, seen: bytes | None) -> bool:
        """The same, but only where it still is `seen` (None: not there); says whether it was.

        `seen`: as `load` gives it with a catalog's limit. Of several writers that have
        seen the same, one is told so.
        """

    def upload(self, prefix: str, key: str, source: BinaryIO, size_bytes: int, watch: Watch) -> int:
        """Write a large object from an open file; readers see all of it or nothing.

        Returns the CRC-32 of what was written. A file that ends early is Transient.
        """

    def holds(self, stored: Stored, prefix: str, source: BinaryIO, watch: Watch) -> bool:
        """Whether an object has the content of `source`, as far as the store can prove it."""

    def delete(self, prefix: str, key: str) -> None:
        """Also where there is none any more."""

    def unfinished(self, prefix: str) -> tuple[Unfinished, ...] | None:
        """What is half done under `prefix`/; None: this store does not tell."""

    def discard(self, prefix: str, unfinished: Unfinished) -> None:
        """Give the room of something half done back."""

    def close(self) -> None: ...
