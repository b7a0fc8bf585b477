"""An object in parts: what a journal counts by, and what one GET brings several of (PURE)."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

_MIB = 1 << 20
_SMALLEST = 8 * _MIB
_LARGEST_RUN = 64 * _MIB
_MOST_PARTS = 4096


@dataclass(frozen=True, slots=True)
class Part:
    index: int
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        return self.offset + self.size_bytes


def part_bytes_for(size_bytes: int) -> int:
    """8 MiB, and more above 32 GiB: what is lost by a kill is the parts under way.

    A GET costs the client about 1 ms of CPU, which 8 MiB outweigh.
    """
    return max(_SMALLEST, -(-size_bytes // _MOST_PARTS // _MIB) * _MIB)


def parts_of(size_bytes: int, part_bytes: int) -> tuple[Part, ...]:
    """All parts in order; an empty object has none."""
    return tuple(
        Part(index, offset, min(part_bytes, size_bytes - offset))
        for index, offset in enumerate(range(0, size_bytes, part_bytes))
    )


class Runs:
    """What is missing, handed out in order: up to 64 MiB to a GET, one part to each at the end.

    So that all connections end together, whatever each brings in a second, nobody gets more than
    half of what would be its equal share of the rest. For one thread at a time.
    """

    def __init__(self, missing: Iterable[Part]) -> None:
        self._left = deque(missing)

    def take(self, at_once: int) -> tuple[Part, ...]:
        """Neighbours, one at least; empty where all are taken. `at_once`: GETs under way."""
        run: list[Part] = []
        wanted = len(self._left) // (2 * at_once)
        while self._left and len(run) < max(1, wanted):
            following = self._left[0]
            if run and not (
                run[-1].end == following.offset and following.end - run[0].offset <= _LARGEST_RUN
            ):
                break
            run.append(self._left.popleft())
        return tuple(run)
