"""What a model needs of memory, the host's or a GPU's, and what there is of it.

need = weights + KV cache + the rest, as far as each is known. A part that is not known counts as
nothing, and is named: a need is then "at least" so much.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NewType

from reconciler.plan.gpus import Gpu
from reconciler.plan.wording import amount

Pool = NewType("Pool", str)
"""One memory: the host's, or a GPU's by what that is claimed by."""
HOST = Pool("host")


def pool_of(device: Gpu) -> Pool:
    """Where a GPU works. What works in the machine's memory has none of its own."""
    return HOST if device.unified else Pool(device.identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes of one memory; None: not known.

    `weights_bytes`: a projector's too. `kv_cache_bytes`: for `tokens` of context in all, where that
    is what it follows from. `mapped_bytes`: of the weights, those that are pages of their files,
    which the kernel takes from one process to give them to another, and reads again.
    `claimed_bytes`: what the engine takes at its start, however little of it the model needs.
    `checked_bytes`: what it wants to see free then, without taking it. `grows`: these are the least
    that it does with; it takes what is free beside for a larger context.
    """

    weights_bytes: int | None = None
    kv_cache_bytes: int | None = None
    overhead_bytes: int = 0
    tokens: int | None = None
    mapped_bytes: int = 0
    claimed_bytes: int | None = None
    checked_bytes: int | None = None
    grows: bool = False

    @property
    def known_bytes(self) -> int:
        """What is known of its parts, together."""
        return (self.weights_bytes or 0) + (self.kv_cache_bytes or 0) + self.overhead_bytes

    @property
    def total_bytes(self) -> int:
        """What has to be free for a start."""
        return max(self.known_bytes, self.claimed_bytes or 0, self.checked_bytes or 0)

    @property
    def own_bytes(self) -> int:
        """What nobody else can have while it runs."""
        return max(self.known_bytes, self.claimed_bytes or 0) - self.mapped_bytes

    @property
    def overflows(self) -> bool:
        """Whether its own share is too small for it, whatever is free."""
        return self.claimed_bytes is not None and self.known_bytes > self.claimed_bytes

    @property
    def is_whole(self) -> bool:
        """Whether every part is known, so that the total is no lower bound."""
        if self.grows:
            return False
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
            "checked_bytes": self.checked_bytes,
            "grows": self.grows,
        }

    @property
    def parts(self) -> str:
        return ", ".join(self._parts())

    def __str__(self) -> str:
        least = "" if self.is_whole else "at least "
        return f"{least}{amount(self.total_bytes)} of memory ({self.parts})"

    def __add__(self, other: "Need") -> "Need":
        """Both in one memory. A part that is not known of one is not known of both."""
        return Need(
            weights_bytes=_sum(self.weights_bytes, other.weights_bytes),
            kv_cache_bytes=_sum(self.kv_cache_bytes, other.kv_cache_bytes),
            overhead_bytes=self.overhead_bytes + other.overhead_bytes,
            tokens=self.tokens if other.tokens is None else other.tokens,
            mapped_bytes=self.mapped_bytes + other.mapped_bytes,
            claimed_bytes=_either(self.claimed_bytes, other.claimed_bytes),
            checked_bytes=_either(self.checked_bytes, other.checked_bytes),
            grows=self.grows or other.grows,
        )

    def _parts(self) -> Iterator[str]:
        yield f"weights {_known(self.weights_bytes)}"
        tokens = f" for {self.tokens:,} tokens" if self.tokens is not None else ""
        if self.claimed_bytes is not None and self.kv_cache_bytes is None:
            yield "the rest of its share for the KV cache"
            return
        more = " and more where there is room" if self.grows else ""
        yield f"KV cache {_known(self.kv_cache_bytes)}{tokens}{more}"
        if self.claimed_bytes is not None:
            yield f"a share of {amount(self.claimed_bytes)}"
        elif self.checked_bytes is not None and self.checked_bytes > self.known_bytes:
            yield f"{amount(self.checked_bytes)} have to be free at its start"
        else:
            yield f"{amount(self.overhead_bytes)} else"


Needs = Mapping[Pool, Need]
"""Of one model, by memory; none: nothing is known."""


def figures_of(needs: Needs) -> dict[str, object]:
    """For machines: of the host's memory, and of each GPU's by its identity."""
    host = needs.get(HOST)
    return {
        "memory": host.figures if host is not None else None,
        "memory_on_gpus": {pool: need.figures for pool, need in needs.items() if pool != HOST},
    }


def gathered(needs: Iterable[tuple[Pool, Need]]) -> dict[Pool, Need]:
    """Each memory once, however many devices work in it."""
    found: dict[Pool, Need] = {}
    for pool, need in needs:
        found[pool] = found[pool] + need if pool in found else need
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A process that holds some of a memory and is no model's of this agent.

    `who`: its name and whose it is. `held_bytes`: None: not told.
    """

    pid: int
    who: str
    held_bytes: int | None = None

    def __str__(self) -> str:
        held = "some" if self.held_bytes is None else amount(self.held_bytes)
        return f"pid {self.pid} ({self.who}) holds {held}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A memory. `free_bytes`: what a new process could have without harm to others; pages of files
    that can be read again are free.

    `where`: the GPU, for reasons; None: the host. `unknown`: why what is free cannot be told yet.
    `returning`: whose memory may come back still, for they have just ended. `users`: who else holds
    it, the largest first; None: that is not told, for the reason `untold`.
    """

    total_bytes: int
    free_bytes: int
    where: str | None = None
    unknown: str | None = None
    returning: tuple[str, ...] = ()
    users: tuple[User, ...] = ()
    untold: str | None = None

    @property
    def on(self) -> str:
        return "" if self.where is None else f" on {self.where}"


def _known(size_bytes: int | None) -> str:
    return "not known" if size_bytes is None else amount(size_bytes)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _either(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one + other
