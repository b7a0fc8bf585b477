"""The memory that models run in, as it was when something was last new about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reconciler.observe.host_memory import held_by, read_room
from reconciler.plan.ids import Nonce
from reconciler.plan.memory import Room

LONGEST_SECONDS = 300.0
"""What was refused is judged anew at least this often, however little has changed."""
_STEP = 64
"""A change by this part of all memory is news; else every tick would have other numbers to tell."""

Families = Mapping[Nonce, tuple[int, ...]]
"""The pids of each backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`held`: by each backend alone, in bytes."""

    room: Room
    held: Mapping[Nonce, int]


@dataclass(frozen=True, slots=True)
class _Reading:
    memory: Memory
    at: float


class MemoryWatch:
    """`clock`: monotonic seconds."""

    def __init__(
        self, *, clock: Callable[[], float], read: Callable[[], Room | None] = read_room
    ) -> None:
        self._clock = clock
        self._read = read
        self._last: _Reading | None = None

    def look(self, families: Families) -> Memory | None:
        """The very value of the call before, unless there is news. None: the kernel does not tell.

        For a thread: it reads /proc, some 20 µs a process.
        """
        room, now = self._read(), self._clock()
        if room is None:
            return None
        last = self._last
        if last is None or _is_news(last, room, families, now):
            held = {nonce: held_by(pids) for nonce, pids in families.items()}
            last = self._last = _Reading(Memory(room=room, held=held), now)
        return last.memory

    def forget(self) -> None:
        """Nobody asks any more: the next one is told what is so then."""
        self._last = None


def _is_news(last: _Reading, room: Room, families: Families, now: float) -> bool:
    before = last.memory.room
    moved = abs(room.free_bytes - before.free_bytes)
    return (
        last.memory.held.keys() != families.keys()
        or room.total_bytes != before.total_bytes
        or moved * _STEP >= room.total_bytes
        or now - last.at >= LONGEST_SECONDS
    )
