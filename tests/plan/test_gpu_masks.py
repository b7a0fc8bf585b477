"""Masks of the agent's own environment: they count as CUDA and HIP would read them, and once."""

import pytest

from reconciler.plan.gpu_order import inventory
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import GpuUuid
from tests.plan.gpu import amd, answers, nvidia

# NVML's order is not PCI's (gpustack#5784).
FOUR = [nvidia(bus, order=order) for bus, order in ((1, 3), (2, 1), (3, 0), (4, 2))]
MIG = [
    nvidia(1, order=0),
    *(
        nvidia(2, uuid=GpuUuid(f"MIG-{slot}"), mig_of=GpuUuid("GPU-n2"), slot=slot, order=1)
        for slot in range(2)
    ),
]
# HIP's order is neither (pytorch PR#160468).
THREE = [amd(bus, order=order) for bus, order in ((1, 2), (2, 0), (3, 1))]


def left(devices: list[Gpu], masks: dict[str, str], by: Step = Step.NVML) -> list[str]:
    found = inventory(answers(*devices, by=by), masks)
    return [device.identity.removeprefix("GPU-") for device in found.usable]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("0", ["n1"]),
        ("2,0", ["n1", "n3"]),
        ("GPU-n4, 1", ["n2", "n4"]),
        ("GPU-n", []),
        ("0,7,1", ["n1"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_counts_in_pci_order_and_ends_at_what_is_not_there(
    mask: str, expected: list[str]
) -> None:
    assert left(FOUR, {"CUDA_VISIBLE_DEVICES": mask}) == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [("MIG-1", ["MIG-1"]), ("1", ["MIG-0"]), ("GPU-n2", ["MIG-0"]), ("0,MIG-1", ["n1", "MIG-1"])],
)
def test_cuda_means_a_mig_instance_by_its_uuid_or_the_first_of_a_gpu(
    mask: str, expected: list[str]
) -> None:
    assert left(MIG, {"CUDA_VISIBLE_DEVICES": mask}) == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("all", ["n1", "n2", "n3", "n4"]),
        ("void", ["n1", "n2", "n3", "n4"]),
        ("", ["n1", "n2", "n3", "n4"]),
        ("/var/run/nvidia-container-devices", ["n1", "n2", "n3", "n4"]),
        ("none", []),
        ("GPU-n2,GPU-n4", ["n2", "n4"]),
        ("4,5,6,7", ["n1", "n2", "n3", "n4"]),
        ("0,3", ["n1", "n3"]),
        ("0:1,2:3", ["n1", "n2", "n3", "n4"]),
    ],
)
def test_what_the_container_runtime_did_is_not_done_again(mask: str, expected: list[str]) -> None:
    """Four numbers and four GPUs: it did. Two numbers and four GPUs: it did not; NVML's count."""
    assert left(FOUR, {"NVIDIA_VISIBLE_DEVICES": mask}) == expected


def test_cuda_counts_what_the_container_has() -> None:
    masks = {"NVIDIA_VISIBLE_DEVICES": "GPU-n2,GPU-n4", "CUDA_VISIBLE_DEVICES": "1"}

    assert left(FOUR, masks) == ["n4"]


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({"HIP_VISIBLE_DEVICES": "0"}, ["a2"]),
        ({"HIP_VISIBLE_DEVICES": "0,9,1"}, ["a2"]),
        ({"HIP_VISIBLE_DEVICES": ""}, ["a1", "a2", "a3"]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "2"}, ["a1"]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, ["a3"]),
        ({"GPU_DEVICE_ORDINAL": "1"}, ["a3"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-a1,0"}, ["a1", "a2"]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, ["a1"]),
    ],
)
def test_hip_counts_in_its_own_order_what_rocr_leaves(
    masks: dict[str, str], expected: list[str]
) -> None:
    assert left(THREE, masks, by=Step.AMDSMI) == expected


def test_a_mask_of_cuda_does_not_hide_amd_where_nvidia_is_too() -> None:
    """Also while NVIDIA's driver does not answer: AMD's GPUs must not go and come with it."""
    masks = {"CUDA_VISIBLE_DEVICES": "7"}
    hung = Answer(step=Step.NVML, reason="did not answer", cause=Cause.HUNG)
    by_amdsmi = answers(amd(9), by=Step.AMDSMI)

    assert left([nvidia(1), amd(9)], masks) == ["a9"]
    assert len(inventory([*by_amdsmi, hung], masks).usable) == 1
    assert len(inventory(by_amdsmi, masks).usable) == 0


def test_torch_has_applied_them() -> None:
    assert left([nvidia(2)], {"CUDA_VISIBLE_DEVICES": "1"}, by=Step.TORCH) == ["n2"]


def test_the_mask_that_hides_a_gpu_is_named() -> None:
    found = inventory(answers(*FOUR), {"CUDA_VISIBLE_DEVICES": "1"})

    assert found.devices[0].unusable == "hidden by CUDA_VISIBLE_DEVICES=1"
    assert found.notes == ()


@pytest.mark.parametrize(("order", "notes"), [({}, 1), ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 0)])
def test_numbers_for_gpus_of_different_kinds_are_doubtful(
    order: dict[str, str], notes: int
) -> None:
    kinds = [nvidia(1), nvidia(2, name="NVIDIA T400")]

    found = inventory(answers(*kinds), {"CUDA_VISIBLE_DEVICES": "1", **order})

    assert len(found.notes) == notes
    assert [device.identity for device in found.usable] == ["GPU-n2"]


def test_where_hips_order_is_not_told_pci_order_counts_and_it_is_said() -> None:
    found = inventory(answers(amd(1), amd(2), by=Step.AMDSMI), {"HIP_VISIBLE_DEVICES": "1"})

    assert [device.identity for device in found.usable] == ["GPU-a2"]
    assert len(found.notes) == 1
