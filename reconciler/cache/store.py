"""What the cache asks of a hub. The stores in `hub` have this shape; `node` hands one over."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol


class StoredObject(Protocol):
    """A file under a prefix.

    `path`: relative to the prefix. `key`: what the store calls it. `version`: changes with the
    content, "" where the store has none. `md5`, `sha256`: hex, where known.
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


class Store(Protocol):
    """Blocking. Every method raises Transient or Rejected with a message for operators."""

    @property
    def location(self) -> str: ...
    @property
    def reads_at_once(self) -> int:
        """How many reads side by side it serves best."""

    def objects(self, prefix: str, digest: str | None = None) -> Sequence[StoredObject]:
        """All files of a prefix; empty where there is no such prefix, or none that is complete.

        Either all have a `sha256`, from a catalog, or none has. `digest`: of the push that is
        wanted, in hex, None: the one in force; without a catalog there is only what is there.
        """

    def prefixes(self) -> Sequence[str]:
        """All prefixes, for messages."""

    def read(
        self,
        stored: StoredObject,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        journal: Journal | None = None,
    ) -> None:
        """Write exactly this version of the object to `fd`, from position 0.

        `on_bytes` is told how many of its bytes are there, by one thread at a time. `journal`: what
        an earlier try has left in `fd`; a store need not go on from there. OSError of a full disk
        passes as it is.
        """
