"""What models hold of GPUs, where drivers tell it and where they do not."""

from dataclasses import replace

import pytest

from reconciler.loop.gpu_memory import GpuFigures, Successions, gpu_held, gpu_rooms
from reconciler.plan.gpus import GpuProcess
from reconciler.plan.ids import GpuUuid
from reconciler.plan.memory import Pool
from tests.loop.book_entries import view
from tests.plan.gpu import nvidia

GIB = 1 << 30
LOADED = replace(view(), pid=7, gpus=(GpuUuid("GPU-n1"),), loaded_at=1.0)
FAMILIES = {LOADED.nonce: (7,)}


def figures(*processes: tuple[int, int | None], began: float = 2.0, own: bool = True) -> GpuFigures:
    device = nvidia(
        1,
        memory_total_bytes=80 * GIB,
        memory_used_bytes=70 * GIB,
        memory_free_bytes=10 * GIB,
        index=0,
        processes=tuple(GpuProcess(pid=pid, memory_bytes=size) for pid, size in processes),
    )
    return GpuFigures(devices=(device,), began=began, own_pids=own)


@pytest.mark.parametrize(
    ("told", "held"),
    [
        (figures((7, 40 * GIB)), 40),
        (figures((9, 30 * GIB)), 40),
        (figures((7, None), (9, 30 * GIB)), 40),
        (figures(), 70),
        (figures((7, 40 * GIB), own=False), 70),
    ],
)
def test_what_is_not_told_and_nobody_else_s_is_the_model_s(told: GpuFigures, held: int) -> None:
    assert gpu_held(told, FAMILIES, [LOADED]) == {LOADED.nonce: {Pool("GPU-n1"): held * GIB}}


def test_a_survey_from_before_a_load_does_not_tell_what_is_free() -> None:
    (room,) = gpu_rooms(figures(began=0.5), FAMILIES, [LOADED]).values()
    assert room.unknown == f"what {LOADED.model} (pid 7) has taken is being asked"
    (later,) = gpu_rooms(figures(), FAMILIES, [LOADED]).values()
    assert (later.unknown, later.free_bytes) == (None, 10 * GIB)


def test_a_survey_from_before_a_change_stops_nothing() -> None:
    successions = Successions()
    gpu = figures().devices
    next_one = {(LOADED.model, LOADED.instance): gpu}
    wanted = successions.see(next_one, 2.5)

    (room,) = gpu_rooms(replace(figures(), replaced=wanted), FAMILIES, [LOADED]).values()
    assert room.unknown == "what is free there now is being asked"
    later = successions.see(next_one, 9.0)
    (room,) = gpu_rooms(replace(figures(began=3.0), replaced=later), FAMILIES, [LOADED]).values()
    assert (room.unknown, room.free_bytes) == (None, 10 * GIB)
    assert (successions.see({}, 9.0), successions.see(next_one, 9.5)) == ({}, {"GPU-n1": 9.5})


def test_a_driver_that_is_silent_has_told_how_much_there_is_in_all() -> None:
    told = figures(began=0.5)
    (device,) = told.devices
    silent = replace(device, memory_free_bytes=None, memory_used_bytes=None, processes=None)

    (room,) = gpu_rooms(replace(told, devices=(silent,)), FAMILIES, [LOADED]).values()

    assert (room.total_bytes, room.free_bytes, room.unknown) == (80 * GIB, 80 * GIB, None)
