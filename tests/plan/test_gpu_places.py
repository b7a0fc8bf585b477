"""When a process is said to be on a wrong GPU: never without having been seen there."""

from typing import Any

import pytest

from reconciler.plan.gpu_places import misplaced
from reconciler.plan.gpu_roll import Roll, enrolled
from reconciler.plan.gpus import Gpu, GpuProcess
from reconciler.plan.ids import GpuUuid
from tests.plan.gpu import amd, answers, nvidia

MIB = 1 << 20
OURS, CHILD, OTHER = 10, 11, 99


def on(gpu: Any, bus: int, *processes: tuple[int, int | None]) -> Gpu:
    listed = tuple(GpuProcess(pid=pid, memory_bytes=size) for pid, size in processes)
    device: Gpu = gpu(bus, processes=listed)
    return device


def judged(*devices: Gpu, given: str = "GPU-n1") -> str | None:
    roll: Roll = enrolled(None, answers(*devices), {})
    return misplaced((OURS, CHILD), [GpuUuid(given)] if given else [], roll)


@pytest.mark.parametrize(
    "devices",
    [
        (on(nvidia, 1, (OURS, 900 * MIB)), on(nvidia, 2, (OTHER, 900 * MIB))),
        (on(nvidia, 1), on(nvidia, 2)),
        (nvidia(1), nvidia(2)),
        (on(nvidia, 2, (OURS, 2 * MIB)),),
    ],
    ids=["in its place", "seen nowhere", "nothing is told", "hardly there"],
)
def test_no_verdict_without_having_been_seen(devices: tuple[Gpu, ...]) -> None:
    assert judged(*devices) is None


def test_rocm_opens_every_gpu_and_uses_what_it_was_given() -> None:
    devices = (on(amd, 1, (OURS, 900 * MIB)), on(amd, 2, (OURS, MIB)), on(amd, 3, (OURS, None)))
    assert judged(*devices, given="GPU-a1") is None


@pytest.mark.parametrize(
    ("devices", "given", "said"),
    [
        (
            (on(nvidia, 1), on(nvidia, 2, (CHILD, None))),
            "GPU-n1",
            "pid 11 is on GPU 1 (GPU-n2), and was given GPU 0 (GPU-n1)",
        ),
        (
            (on(nvidia, 1, (OURS, 900 * MIB)), on(nvidia, 2, (OURS, 300 * MIB))),
            "GPU-n1",
            "pid 10 is on GPU 1 (GPU-n2), and was given GPU 0 (GPU-n1)",
        ),
        ((on(nvidia, 2, (OURS, None)),), "", "pid 10 is on GPU 0 (GPU-n2), and was given no GPU"),
    ],
)
def test_what_is_seen_on_another_gpu_is_said(
    devices: tuple[Gpu, ...], given: str, said: str
) -> None:
    assert judged(*devices, given=given) == said
