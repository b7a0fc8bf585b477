"""What is free is news when it has changed, and otherwise the very value of before."""

import os
from dataclasses import dataclass, field

import pytest

from reconciler.loop.gpu_memory import GpuFigures
from reconciler.loop.memory import LONGEST_SECONDS, MemoryWatch
from reconciler.plan.ids import Nonce
from reconciler.plan.memory import HOST, Room

GIB = 1 << 30
NO_GPUS = GpuFigures()
US = {Nonce("a"): (os.getpid(),)}


@dataclass
class Host:
    now: float = 0.0
    room: Room | None = field(
        default_factory=lambda: Room(total_bytes=64 * GIB, free_bytes=9 * GIB)
    )

    def watch(self) -> MemoryWatch:
        return MemoryWatch(clock=lambda: self.now, read=lambda: self.room)

    def free(self, size_bytes: int) -> None:
        self.room = Room(total_bytes=64 * GIB, free_bytes=size_bytes)


@pytest.fixture
def host() -> Host:
    return Host()


def test_little_has_changed(host: Host) -> None:
    """No tick is busy with numbers that are others each time."""
    watch = host.watch()
    first = watch.look(US, (), NO_GPUS)
    room = host.room
    host.now = LONGEST_SECONDS - 1
    host.free(9 * GIB - GIB // 2)
    assert watch.look(US, (), NO_GPUS) is first
    assert first is not None
    assert (first.rooms[HOST], first.held[Nonce("a")][HOST] > 0) == (room, True)


def test_much_has_changed(host: Host) -> None:
    """Scenario 17 (ollama#9016, #11997): nothing waits for memory that is free already."""
    watch = host.watch()
    watch.look(US, (), NO_GPUS)
    host.free(10 * GIB)
    again = watch.look(US, (), NO_GPUS)
    assert again is not None
    assert again.rooms == {HOST: host.room}


def test_little_has_changed_for_long(host: Host) -> None:
    watch = host.watch()
    watch.look(US, (), NO_GPUS)
    host.free(9 * GIB + 1)
    host.now = LONGEST_SECONDS
    again = watch.look(US, (), NO_GPUS)
    assert again is not None
    assert again.rooms == {HOST: host.room}


def test_a_process_that_is_gone_holds_nothing(host: Host) -> None:
    """Scenario 19 (gpustack#1354)."""
    watch = host.watch()
    watch.look(US, (), NO_GPUS)
    again = watch.look({}, (), NO_GPUS)
    assert again is not None
    assert again.held == {}


def test_who_asks_anew_is_told_what_is_so_then(host: Host) -> None:
    watch = host.watch()
    first = watch.look(US, (), NO_GPUS)
    watch.forget()
    assert watch.look(US, (), NO_GPUS) is not first


def test_the_kernel_tells_nothing(host: Host) -> None:
    host.room = None
    assert host.watch().look(US, (), NO_GPUS) is None
