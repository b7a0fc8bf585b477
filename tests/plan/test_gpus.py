"""What GPUs are called, and what class they are of."""

import pytest

from reconciler.plan.gpus import (
    Gpu,
    GpuClass,
    Memory,
    Vendor,
    gfx,
    gfx_of_kfd,
    gpu_class,
    pci_address,
    with_memory,
)
from tests.plan.gpu import amd, nvidia

_CDNA = "gfx908 gfx90a gfx940 gfx941 gfx942 gfx950 gfx1250"
_RDNA = "gfx1010 gfx1030 gfx1037 gfx1100 gfx1103 gfx1150 gfx1151 gfx1153 gfx1200 gfx1201"
_NEITHER = "gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c gfx803 gfx1251 gfx1300"


@pytest.mark.parametrize(
    ("names", "expected"),
    [(_CDNA, GpuClass.CDNA), (_RDNA, GpuClass.RDNA), (_NEITHER, GpuClass.UNKNOWN)],
)
def test_the_class_is_looked_up_by_the_whole_name(names: str, expected: GpuClass) -> None:
    assert {gpu_class(Vendor.AMD, name) for name in names.split()} == {expected}


def test_unknown_stays_unknown() -> None:
    assert gpu_class(Vendor.AMD, None) is GpuClass.UNKNOWN
    assert gpu_class(Vendor.NVIDIA, None) is GpuClass.NVIDIA


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (110501, "gfx1151"),
        (100300, "gfx1030"),
        (90500, "gfx950"),
        (120001, "gfx1201"),
        (120500, "gfx1250"),
    ],
)
def test_the_kernels_number_is_decimal(version: int, name: str) -> None:
    assert gfx_of_kfd(version) == name


def test_features_are_no_part_of_the_architecture() -> None:
    assert gfx("gfx942:sramecc+:xnack-") == "gfx942"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:17:00.0", "0000:17:00.0"),
        ("0000:C5:00.0", "0000:c5:00.0"),
        ("c5:00.0", "0000:c5:00.0"),
        ("00010001:3B:1F.7", "10001:3b:1f.7"),
        ("0:0c:00", "0000:0c:00.0"),
        ("GPU-1", None),
        ("0", None),
        ("", None),
    ],
)
def test_there_is_one_way_to_write_a_pci_address(text: str, expected: str | None) -> None:
    assert pci_address(text) == expected


def test_a_gpu_without_a_uuid_is_claimed_by_its_address() -> None:
    assert nvidia(1).identity == "GPU-n1"
    assert amd(0xC5, uuid=None).identity == "0000:c5:00.0"


@pytest.mark.parametrize(
    ("gpu", "own", "shared", "total"),
    [
        (amd(1, "gfx942"), 192, 64, 192),
        (amd(1, "gfx1151"), 1, 64, 64),
        (amd(1, "gfx1151"), 96, 16, 96),
        (amd(1, "gfx1151"), None, None, None),
    ],
)
def test_an_apu_works_in_the_larger_of_its_two_memories(
    gpu: Gpu, own: int | None, shared: int | None, total: int | None
) -> None:
    given = [
        None if size is None else Memory(total_bytes=size, used_bytes=1) for size in (own, shared)
    ]

    result = with_memory(gpu, *given)

    assert result.memory_total_bytes == total
    assert result.memory_free_bytes == (None if total is None else total - 1)
