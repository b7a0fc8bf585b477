"""One object of a hub, and the two components that a prefix has."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from reconciler.errors import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class HubObject:
    """A file under a prefix.

    `path`: relative to the prefix. `key`: what the store calls it. `version`: changes with the
    content (the ETag, or size and mtime); "" where the store has none. `md5`, `sha256`: hex, where
    known.
    """

    path: str
    key: str
    size_bytes: int
    version: str
    md5: str | None = None
    sha256: str | None = None


class ObjectRef(Protocol):
    """What `read` needs of an object; the cache hands its own records of them back."""

    @property
    def key(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def version(self) -> str: ...
    @property
    def md5(self) -> str | None: ...
    @property
    def sha256(self) -> str | None: ...


class Journal(Protocol):
    """Which parts of an object an earlier try, which may have been killed, has written."""

    def begin(self, part_bytes: int) -> tuple[int, AbstractSet[int]]:
        """The size of its parts, and the index of each finished one.

        The size is `part_bytes` where there was no earlier try.
        """

    def finished(self, index: int) -> None:
        """All bytes of this part were written."""

    def forget(self) -> None:
        """No part is finished after all."""


def checked_prefix(prefix: str) -> str:
    """`prefix` itself. Raises Rejected unless it has exactly two plain components."""
    parts = prefix.split("/")
    if len(parts) != 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Rejected(
            f"cannot use hub prefix {prefix!r}: it must have two parts, as gguf/<org>_<name> or "
            "huggingface/<org>_<name> have"
        )
    return prefix
