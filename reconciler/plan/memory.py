"""What a model needs of a device's memory, and what the device has.

need = weights + KV cache + the rest, as far as each is known. A part that is not known counts as
nothing, and is named: a need is then "at least" so much.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.plan.wording import amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes of one device's memory; None: not known.

    `weights_bytes`: a projector's too. `kv_cache_bytes`: for `tokens` of context in all, where that
    is what it follows from. `mapped_bytes`: of the weights, those that are pages of their files,
    which the kernel takes from one process to give them to another, and reads again.
    `claimed_bytes`: what the engine takes at its start, however little of it the model needs.
    """

    weights_bytes: int | None = None
    kv_cache_bytes: int | None = None
    overhead_bytes: int = 0
    tokens: int | None = None
    mapped_bytes: int = 0
    claimed_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """What has to be free for a start."""
        known = (self.weights_bytes or 0) + (self.kv_cache_bytes or 0) + self.overhead_bytes
        return max(known, self.claimed_bytes or 0)

    @property
    def own_bytes(self) -> int:
        """What nobody else can have while it runs."""
        return self.total_bytes - self.mapped_bytes

    @property
    def is_whole(self) -> bool:
        """Whether every part is known, so that the total is no lower bound."""
        if self.claimed_bytes is not None:
            return True
        return self.weights_bytes is not None and self.kv_cache_bytes is not None

    @property
    def figures(self) -> dict[str, int | bool | None]:
        """For machines. `total_bytes` is a lower bound unless it is `complete`."""
        return {
            "total_bytes": self.total_bytes,
            "complete": self.is_whole,
            "weights_bytes": self.weights_bytes,
            "mapped_bytes": self.mapped_bytes,
            "kv_cache_bytes": self.kv_cache_bytes,
            "context_tokens": self.tokens,
            "overhead_bytes": self.overhead_bytes,
            "claimed_bytes": self.claimed_bytes,
        }

    def __str__(self) -> str:
        least = "" if self.is_whole else "at least "
        return f"{least}{amount(self.total_bytes)} of memory ({', '.join(self._parts())})"

    def _parts(self) -> Iterator[str]:
        yield f"weights {_known(self.weights_bytes)}"
        tokens = f" for {self.tokens:,} tokens" if self.tokens is not None else ""
        if self.claimed_bytes is not None:
            yield "the rest of its share for the KV cache"
            return
        yield f"KV cache {_known(self.kv_cache_bytes)}{tokens}"
        yield f"{amount(self.overhead_bytes)} else"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A device's memory. `free_bytes`: what a new process could have without harm to others; pages
    of files that can be read again are free."""

    total_bytes: int
    free_bytes: int


def _known(size_bytes: int | None) -> str:
    return "not known" if size_bytes is None else amount(size_bytes)
