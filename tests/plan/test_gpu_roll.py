"""What a later survey does to the GPUs that an agent knows."""

from dataclasses import replace

import pytest

from reconciler.plan.gpu_claims import Claim, claims
from reconciler.plan.gpu_holdings import Holding
from reconciler.plan.gpu_mode import NONE_GIVEN, GpuMode
from reconciler.plan.gpu_roll import Roll, enrolled, gains, numbered, recalled
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import GpuUuid, ModelName
from tests.plan.gpu import amd, answers, nvidia
from tests.plan.test_gpu_claims import model

GIB = 1024**3
FIRST, SECOND, THIRD = (
    nvidia(bus, memory_total_bytes=80 * GIB, memory_used_bytes=GIB) for bus in (1, 2, 3)
)
HANGS = Answer(step=Step.NVML, reason="did not answer within 30 s", cause=Cause.HUNG)


def after(*surveys: list[Answer]) -> Roll:
    roll: Roll | None = None
    for survey in surveys:
        roll = enrolled(roll, survey, {})
    assert roll is not None
    return roll


def numbers(roll: Roll) -> list[tuple[int | None, str]]:
    return [(device.index, device.identity) for device in roll.devices]


def test_a_first_survey_is_taken_as_it_is() -> None:
    roll = after(answers(SECOND, FIRST))

    assert numbers(roll) == [(0, "GPU-n1"), (1, "GPU-n2")]
    assert (roll.usable, roll.notes, roll.failed) == (roll.devices, (), False)
    assert roll.told == ("nvml: told",)


def test_a_gpu_that_its_driver_lists_no_more_is_lost_and_no_other_takes_its_number() -> None:
    roll = after(answers(FIRST, SECOND, THIRD), answers(FIRST, THIRD))

    assert [device.index for device in roll.usable] == [0, 2]
    assert roll.notes == ("GPU 1 (GPU-n2) is lost: its driver does not list it any more",)
    assert roll.devices[1].memory_used_bytes is None
    assert not roll.failed


def test_a_gpu_that_says_itself_that_it_is_lost_keeps_its_number() -> None:
    roll = after(answers(FIRST, SECOND), answers(nvidia(1, unusable="lost: GPU is lost"), SECOND))

    assert [device.index for device in roll.usable] == [1]
    assert roll.notes == ("GPU 0 (GPU-n1) is lost: GPU is lost",)


def test_a_lost_gpu_that_comes_back_is_as_before() -> None:
    whole = answers(FIRST, SECOND)

    assert after(whole, answers(SECOND), whole) == after(whole)


def test_gpus_of_a_driver_that_does_not_answer_count_as_they_were() -> None:
    roll = after(answers(FIRST, SECOND), [HANGS], [HANGS])

    assert [device.index for device in roll.usable] == [0, 1]
    assert roll.usable[0].memory_total_bytes == 80 * GIB
    assert roll.usable[0].memory_used_bytes is None
    assert roll.notes == ("nvml: did not answer within 30 s; its GPUs count as they were",)


def test_a_library_that_is_gone_takes_no_gpu_with_it() -> None:
    gone = Answer(step=Step.NVML, reason="there is no libnvidia-ml.so.1", cause=Cause.ABSENT)

    torch = Answer(step=Step.TORCH, reason="is not installed", cause=Cause.ABSENT)

    roll = after(answers(FIRST), [gone, torch])

    assert numbers(roll) == [(0, "GPU-n1")]
    assert roll.notes == ("nvml: there is no libnvidia-ml.so.1; its GPUs count as they were",)


def test_the_other_vendor_goes_on() -> None:
    of_amd = Answer(step=Step.AMDSMI, reason="told", devices=(amd(9),))

    roll = after([of_amd, *answers(FIRST)], [of_amd, HANGS])

    assert numbers(roll) == [(0, "GPU-n1"), (1, "GPU-a9")]
    assert len(roll.notes) == 1


def test_a_driver_that_never_answered_is_told_and_not_taken_for_a_machine_without_gpus() -> None:
    roll = after([HANGS])

    assert (roll.devices, roll.failed) == ((), True)
    assert roll.notes == ("nvml: did not answer within 30 s",)


def test_a_machine_without_gpus_has_nothing_amiss() -> None:
    absent = [
        Answer(step=step, reason="there is none", cause=cause)
        for step, cause in (
            (Step.AMDSMI, Cause.ABSENT),
            (Step.SYSFS, Cause.NO_DRIVER),
            (Step.NVML, Cause.NO_DEVICE),
            (Step.TORCH, Cause.NOT_ASKED),
        )
    ]

    assert after(absent, absent) == Roll(told=tuple(f"{a.step}: there is none" for a in absent))


def test_another_library_for_the_same_gpu_changes_neither_number_nor_name() -> None:
    """sysfs tells other UUIDs than amdsmi, or none."""
    by_sysfs: Gpu = amd(9, uuid=None, memory_used_bytes=GIB)
    fails = Answer(step=Step.AMDSMI, reason="failed", cause=Cause.OTHER)

    roll = after(
        answers(amd(9), by=Step.AMDSMI),
        [fails, Answer(step=Step.SYSFS, reason="told", devices=(by_sysfs,))],
    )

    assert numbers(roll) == [(0, "GPU-a9")]
    assert roll.usable[0].memory_used_bytes == GIB
    assert roll.notes == ()


def test_what_comes_later_gets_the_next_number() -> None:
    roll = after(answers(SECOND), answers(FIRST, SECOND))

    assert numbers(roll) == [(0, "GPU-n2"), (1, "GPU-n1")]
    assert roll.find(GpuUuid("GPU-n1")) is roll.devices[1]
    assert roll.find(GpuUuid("GPU-n3")) is None


def driven(version: str | None, *devices: Gpu) -> list[Answer]:
    return [Answer(step=Step.NVML, reason="told", devices=devices, driver=version)]


def test_what_comes_back_or_has_another_driver_is_a_gain_and_a_loss_is_none() -> None:
    whole, part = driven("580", FIRST, SECOND), driven("580", FIRST)

    assert gains(after(whole), after(whole, part)) == ()
    assert gains(after(whole, part), after(whole, part, whole)) == (
        "GPU 1 (GPU-n2) can be used now",
    )
    other = driven("590", FIRST, SECOND)
    assert gains(after(whole), after(whole, other)) == ("GPUs have driver 590 (nvml) now",)


def test_a_driver_that_is_silent_for_a_while_is_no_other_one() -> None:
    whole = driven("580", FIRST)

    assert after(whole, [HANGS]).drivers == ("driver 580 (nvml)",)
    assert gains(after(whole, [HANGS]), after(whole, [HANGS], whole)) == ()


NAMELESS = nvidia(0, uuid=None, pci=None, order=1, unusable="lost: GPU is lost")
NO_INSTANCE = nvidia(1, unusable="it is in MIG mode and has no instances")


def test_a_gpu_that_is_lost_from_the_start_is_told_and_comes_back_as_any_that_comes() -> None:
    """Scenario 70, ollama#3647: no driver that fails goes unheard."""
    before = after(answers(FIRST, NAMELESS))

    assert before.notes == ("a GPU of nvidia (its driver's number 1) is lost: GPU is lost",)
    assert numbers(before) == [(0, "GPU-n1"), (None, "nvidia:1")]
    back = after(answers(FIRST, NAMELESS), answers(FIRST, SECOND))
    assert (numbers(back), back.notes) == ([(0, "GPU-n1"), (1, "GPU-n2")], ())


def test_a_lost_gpu_without_a_name_is_the_one_that_is_missing() -> None:
    roll = after(answers(FIRST, SECOND), answers(FIRST, NAMELESS))

    assert roll.notes == ("GPU 1 (GPU-n2) is lost: GPU is lost",)
    assert numbers(roll) == [(0, "GPU-n1"), (1, "GPU-n2")]


def test_a_gpu_in_mig_mode_without_instances_is_told() -> None:
    assert after(answers(NO_INSTANCE, SECOND)).notes == (
        "the GPU GPU-n1 is not used: it is in MIG mode and has no instances",
    )


@pytest.mark.parametrize(
    ("devices", "masks", "amiss"),
    [
        ([FIRST], {"CUDA_VISIBLE_DEVICES": "GPU-typo"}, "GPU-typo is the name of no GPU"),
        ([FIRST], {"CUDA_VISIBLE_DEVICES": "7"}, "7 is the name of no GPU"),
        ([FIRST], {"CUDA_VISIBLE_DEVICES": "MIG-GPU-n1/3/0"}, "its MIG-… UUID"),
        ([FIRST], {"NVIDIA_VISIBLE_DEVICES": "GPU-typo"}, "GPU-typo is the name of no GPU"),
        ([NAMELESS], {"NVIDIA_VISIBLE_DEVICES": "GPU-n2"}, "is lost: GPU is lost; NVIDIA_VISIBLE_"),
        ([NAMELESS], {"NVIDIA_VISIBLE_DEVICES": "0"}, "is lost: GPU is lost"),
        ([NAMELESS], {"CUDA_VISIBLE_DEVICES": "0"}, "is lost: GPU is lost; CUDA_VISIBLE_DEVICES=0"),
        ([NAMELESS], {}, "is lost: GPU is lost"),
        ([NO_INSTANCE], {}, "has no instances"),
        ([FIRST], {"CUDA_VISIBLE_DEVICES": ""}, None),
        ([NAMELESS], {"CUDA_VISIBLE_DEVICES": "-1"}, None),
        ([NAMELESS], {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None),
        ([NAMELESS], {"NVIDIA_VISIBLE_DEVICES": "none"}, None),
        ([], {"CUDA_VISIBLE_DEVICES": "0"}, None),
    ],
)
@pytest.mark.parametrize("mode", GpuMode)
def test_no_gpu_for_a_fault_is_not_the_cpu_and_for_a_wish_it_is(
    devices: list[Gpu], masks: dict[str, str], amiss: str | None, mode: GpuMode
) -> None:
    roll = enrolled(None, answers(*devices), masks, mode=mode)

    (claim,) = claims([model("any")], roll, {}).values()
    (on_cpu,) = claims([model("any", gpus=0)], roll, {}).values()
    kept = {ModelName("any"): (Holding(spec_hash=model("any").spec_hash),)}
    (running,) = claims([model("any")], roll, kept).values()

    assert on_cpu == running == Claim()
    if amiss is None:
        assert (claim, roll.notes) == (Claim(), ())
    else:
        assert amiss in (claim.refusal or "")
        assert amiss in "; ".join(roll.notes)
        assert NONE_GIVEN not in roll.hints


def test_a_mask_of_which_a_part_is_there_is_a_hint() -> None:
    roll = enrolled(None, answers(FIRST, SECOND), {"CUDA_VISIBLE_DEVICES": "1,7"})

    assert (numbers(roll), roll.notes) == ([(0, "GPU-n2"), (None, "GPU-n1")], ())
    assert "7 is the name of no GPU, or of several; what stands after" in roll.hints[0]


def restarted(before: Roll, *survey: Answer, **masks: str) -> Roll:
    """The roll of the next agent, which knows the numbers of this one."""
    return enrolled(recalled(numbered(before)), survey, masks)


def test_after_a_restart_no_other_gpu_is_meant_by_the_number_of_one_that_is_missing() -> None:
    """Scenarios 64 and 66, gpustack#5784 and #6032: asked for GPU 1, ran on 0."""
    whole = after(answers(FIRST, SECOND, THIRD))

    without, nameless = (
        restarted(whole, *answers(*devices))
        for devices in ((SECOND, THIRD), (NAMELESS, SECOND, THIRD))
    )

    assert numbers(without) == numbers(nameless) == numbers(whole)
    assert [each.index for each in without.usable] == [1, 2]
    assert without.notes == ("GPU 0 (GPU-n1) is lost: its driver does not list it any more",)
    assert without.missing == without.devices[:1]
    assert nameless.notes == ("GPU 0 (GPU-n1) is lost: GPU is lost",)
    assert restarted(without, *answers(FIRST, SECOND, THIRD)) == whole


def test_after_a_restart_what_is_new_comes_after_what_was_known() -> None:
    roll = restarted(after(answers(SECOND)), *answers(FIRST, SECOND))

    assert (numbers(roll), roll.notes) == ([(0, "GPU-n2"), (1, "GPU-n1")], ())


def test_cards_that_changed_places_keep_their_numbers_and_another_card_has_its_own_name() -> None:
    before = after(answers(FIRST, SECOND))
    swapped = replace(FIRST, pci=SECOND.pci), replace(SECOND, pci=FIRST.pci)
    other = nvidia(1, uuid=GpuUuid("GPU-new"))

    assert numbers(restarted(before, *answers(*swapped))) == numbers(before)
    exchanged = restarted(before, *answers(other, SECOND))
    assert numbers(exchanged) == [(0, "GPU-new"), (1, "GPU-n2")]


def test_after_a_restart_gpus_of_a_driver_that_does_not_answer_are_given_to_nobody() -> None:
    before = after(answers(FIRST))
    absent = Answer(step=Step.NVML, reason="there is no library", cause=Cause.ABSENT)

    for said in (HANGS, absent):
        roll = restarted(before, said)
        assert (numbers(roll), roll.usable, roll.failed) == (numbers(before), (), True)
        assert roll.notes == (
            f"nvml: {said.reason}",
            "GPU 0 (GPU-n1) is not used: it has not been seen since this agent started",
        )
        assert enrolled(roll, answers(FIRST), {}) == before


def test_what_another_mask_hides_keeps_its_number_and_is_no_fault() -> None:
    before = after(answers(FIRST, SECOND))

    roll = restarted(before, *answers(FIRST, SECOND), CUDA_VISIBLE_DEVICES="1")

    assert (numbers(roll), roll.notes) == (numbers(before), ())
    assert [each.index for each in roll.usable] == [1]
