"""What the cache asks of a hub. The stores in `hub` have this shape; `node` hands one over."""

from collections.abc import Callable, Sequence
from typing import Protocol


class StoredObject(Protocol):
    """A file under a prefix.

    `path`: relative to the prefix. `key`: what the store calls it. `version`: changes with the
    content, "" where the store has none. `md5`: hex, where known.
    """

    @property
    def path(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def version(self) -> str: ...
    @property
    def md5(self) -> str | None: ...


class Store(Protocol):
    """Blocking. Every method raises Transient or Rejected with a message for operators."""

    @property
    def location(self) -> str: ...

    def objects(self, prefix: str) -> Sequence[StoredObject]:
        """All objects under `prefix`/; empty where there is no such prefix."""

    def prefixes(self) -> Sequence[str]:
        """All prefixes, for messages."""

    def read(
        self,
        stored: StoredObject,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        """Write exactly this version of the object to `fd`, from position 0.

        `on_bytes` is told how many of its bytes are there. OSError of a full disk passes as it is.
        """
