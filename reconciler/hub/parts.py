"""An object in parts, each fetched by a GET of its own (PURE)."""

from dataclasses import dataclass

_MIB = 1 << 20
_SMALLEST = 8 * _MIB
_LARGEST = 64 * _MIB
_PARTS_A_FILE = 8


@dataclass(frozen=True, slots=True)
class Part:
    index: int
    offset: int
    size_bytes: int


def part_bytes_for(size_bytes: int) -> int:
    """8 to 64 MiB: a part for each of a file's eight connections, or several for each.

    A GET costs the client about 1 ms of CPU, which 8 MiB outweigh; what is lost by a kill is the
    parts under way, so they do not grow without end.
    """
    an_eighth = -(-size_bytes // _PARTS_A_FILE)
    return min(_LARGEST, max(_SMALLEST, -(-an_eighth // _MIB) * _MIB))


def parts_of(size_bytes: int, part_bytes: int) -> tuple[Part, ...]:
    """All parts in order; an empty object has none."""
    return tuple(
        Part(index, offset, min(part_bytes, size_bytes - offset))
        for index, offset in enumerate(range(0, size_bytes, part_bytes))
    )
