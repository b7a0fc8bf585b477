"""One list of a node's GPUs: its order, its numbers, and who has none."""

from itertools import permutations

import pytest

from reconciler.plan.gpu_order import inventory
from reconciler.plan.gpu_survey import Answer, Cause, Step, needless, next_step
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import GpuUuid
from tests.plan.gpu import amd, answers, nvidia


def numbered(
    *devices: Gpu, named: tuple[str, ...] = (), **masks: str
) -> list[tuple[str, int | None]]:
    found = inventory(answers(*devices), masks, named)
    return [(device.identity, device.index) for device in found.devices]


def test_both_vendors_are_one_list_in_pci_order_whatever_the_libraries_order() -> None:
    devices = (nvidia(0x3B), amd(0x0C), nvidia(0x17), amd(0xA0))
    expected = [("GPU-ac", 0), ("GPU-n17", 1), ("GPU-n3b", 2), ("GPU-aa0", 3)]

    assert all(numbered(*order) == expected for order in permutations(devices))


def test_domains_count_before_buses_and_as_numbers() -> None:
    devices = [
        nvidia(1, uuid=pci, pci=pci) for pci in ("10000:01:00.0", "0002:05:00.0", "0000:ff:00.0")
    ]

    assert [name for name, _ in numbered(*devices)] == [
        "0000:ff:00.0",
        "0002:05:00.0",
        "10000:01:00.0",
    ]


def test_mig_instances_stand_in_the_order_of_their_slots() -> None:
    devices = [
        nvidia(2, uuid=GpuUuid(f"MIG-{slot}"), mig_of=GpuUuid("GPU-n2"), slot=slot)
        for slot in (3, 0)
    ]

    assert numbered(nvidia(1), *devices) == [("GPU-n1", 0), ("MIG-0", 1), ("MIG-3", 2)]


def test_what_cannot_be_used_has_no_number() -> None:
    assert numbered(nvidia(1, unusable="lost"), nvidia(2)) == [("GPU-n1", None), ("GPU-n2", 0)]


def test_a_uuid_that_two_have_names_neither() -> None:
    twins = [amd(1, uuid=GpuUuid("GPU-x"), pci=f"0000:01:00.{part}") for part in (0, 1)]

    assert numbered(*twins) == [("0000:01:00.0", 0), ("0000:01:00.1", 1)]


APU = amd(0xC5, "gfx1151", uuid=None)


def test_an_apu_alone_is_used() -> None:
    assert numbered(APU) == [("0000:c5:00.0", 0)]


@pytest.mark.parametrize("discrete", [nvidia(1), amd(1), amd(1, "gfx1100")])
def test_an_apu_beside_a_discrete_gpu_is_not_used_unless_it_is_named(discrete: Gpu) -> None:
    assert numbered(discrete, APU)[1] == ("0000:c5:00.0", None)
    assert numbered(discrete, APU, named=("GPU-z", "C5:00.0"))[1] == ("0000:c5:00.0", 1)


def test_an_apu_beside_a_gpu_that_is_lost_or_hidden_is_used() -> None:
    assert numbered(nvidia(1, unusable="lost"), APU)[1] == ("0000:c5:00.0", 0)
    assert numbered(nvidia(1), APU, CUDA_VISIBLE_DEVICES="")[1] == ("0000:c5:00.0", 0)


def test_the_chain_asks_every_step_and_torch_only_where_nobody_has_a_device() -> None:
    asked: list[Answer] = []
    while (step := next_step(asked)) is not None:
        asked.append(Answer(step=step, reason="nothing", cause=Cause.ABSENT))

    assert [answer.step for answer in asked] == list(Step)
    assert needless(Step.TORCH, asked[:3]) is None
    assert needless(Step.TORCH, answers(nvidia(1))) is not None
    assert needless(Step.SYSFS, answers(amd(1), by=Step.AMDSMI)) is not None
    assert needless(Step.NVML, answers(amd(1), by=Step.AMDSMI)) is None
    hung = [Answer(step=Step.NVML, reason="did not answer", cause=Cause.HUNG)]
    assert needless(Step.TORCH, hung) is not None
