"""The memories that models run in, as they were when something was last new about them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reconciler.apply.held import BackendView
from reconciler.loop.gpu_memory import Families, GpuFigures, gpu_held, gpu_rooms
from reconciler.observe.host_memory import held_by, read_room
from reconciler.plan.ids import Nonce
from reconciler.plan.memory import HOST, Pool, Room

LONGEST_SECONDS = 300.0
"""What was refused is judged anew at least this often, however little has changed."""
_STEP = 64
"""A change by this part of all memory is news; else every tick would have other numbers to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`held`: by each backend alone, in bytes."""

    rooms: Mapping[Pool, Room]
    held: Mapping[Nonce, Mapping[Pool, int]]

    @property
    def settles(self) -> bool:
        """Whether some of it may come back by itself, so that it should be asked for soon."""
        return any(room.unknown or room.returning for room in self.rooms.values())


@dataclass(frozen=True, slots=True)
class _Reading:
    memory: Memory
    backends: frozenset[Nonce]
    at: float


class MemoryWatch:
    """`clock`: monotonic seconds."""

    def __init__(
        self, *, clock: Callable[[], float], read: Callable[[], Room | None] = read_room
    ) -> None:
        self._clock = clock
        self._read = read
        self._last: _Reading | None = None

    def look(
        self, families: Families, views: Iterable[BackendView], figures: GpuFigures
    ) -> Memory | None:
        """The very value of the call before, unless there is news. None: nobody tells anything.

        For a thread: it reads /proc, some 20 µs a process.
        """
        host, now = self._read(), self._clock()
        there = tuple(views)
        rooms = gpu_rooms(figures, families, there) | ({HOST: host} if host is not None else {})
        if not rooms:
            return None
        last, backends = self._last, frozenset(families)
        if last is None or _is_news(last, rooms, backends, now):
            held = gpu_held(figures, families, there)
            for nonce, pids in families.items():
                on_host = held_by(pids) + held.get(nonce, {}).get(HOST, 0)
                held[nonce] = {**held.get(nonce, {}), HOST: on_host}
            last = self._last = _Reading(Memory(rooms=rooms, held=held), backends, now)
        return last.memory

    def fresh(self) -> "MemoryWatch":
        """For somebody who asks once."""
        return MemoryWatch(clock=self._clock, read=self._read)

    def forget(self) -> None:
        """Nobody asks any more: the next one is told what is so then."""
        self._last = None


def _is_news(
    last: _Reading, rooms: Mapping[Pool, Room], backends: frozenset[Nonce], now: float
) -> bool:
    before = last.memory.rooms
    return (
        last.backends != backends
        or before.keys() != rooms.keys()
        or any(_has_moved(before[pool], room) for pool, room in rooms.items())
        or now - last.at >= LONGEST_SECONDS
    )


def _has_moved(before: Room, room: Room) -> bool:
    moved = abs(room.free_bytes - before.free_bytes)
    return moved * _STEP >= room.total_bytes or _said(before) != _said(room)


def _said(room: Room) -> object:
    """All but what moves."""
    pids = [user.pid for user in room.users]
    return (room.total_bytes, room.unknown, room.returning, room.untold, sorted(pids))
