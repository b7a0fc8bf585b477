"""`--gpu-mode plugin`: what a device plugin gave the agent's container, and nothing else."""

import pytest

from reconciler.plan.gpu_claims import claims
from reconciler.plan.gpu_mode import ALL_IS_NO_GIFT, NONE_GIVEN, GpuMode
from reconciler.plan.gpu_roll import Roll, enrolled
from reconciler.plan.gpu_survey import Answer, Cause, Step
from tests.plan.gpu import amd, answers, nvidia
from tests.plan.test_gpu_claims import holds, model

FOUR = answers(*(nvidia(bus, order=3 - bus) for bus in range(4)))
NO_LIBRARY = [Answer(step=Step.NVML, reason="no library", cause=Cause.ABSENT)]
HANGS = [Answer(step=Step.NVML, reason="hung", cause=Cause.HUNG)]


def roll(told: list[Answer], **masks: str) -> Roll:
    return enrolled(None, told, masks, mode=GpuMode.PLUGIN)


@pytest.mark.parametrize(
    ("mask", "given"),
    [
        ("GPU-n2,GPU-n3", ["GPU-n2", "GPU-n3"]),
        ("0", ["GPU-n3"]),
        ("void", ["GPU-n0", "GPU-n1", "GPU-n2", "GPU-n3"]),
        ("/var/run/nvidia-container-devices", ["GPU-n0", "GPU-n1", "GPU-n2", "GPU-n3"]),
        ("none", []),
        ("all", []),
    ],
)
def test_what_the_plugin_said_counts_and_else_the_device_files(mask: str, given: list[str]) -> None:
    """UUIDs or numbers of NVML by the environment; CDI says void, mounts and GKE leave files."""
    found = roll(FOUR, NVIDIA_VISIBLE_DEVICES=mask)

    assert [device.identity for device in found.usable] == given
    assert [device.index for device in found.usable] == list(range(len(given)))
    assert (ALL_IS_NO_GIFT in found.hints) == (mask == "all")
    assert (NONE_GIVEN in found.hints) == (not given)


def test_an_image_that_says_all_hides_nothing_of_amd_and_nothing_where_the_node_is_ours() -> None:
    masks = {"NVIDIA_VISIBLE_DEVICES": "all"}
    both = [*FOUR, *answers(amd(9), by=Step.AMDSMI)]

    assert [device.identity for device in roll(both, **masks).usable] == ["GPU-a9"]
    assert len(enrolled(None, both, masks).usable) == 5


def test_a_mask_within_what_was_given_counts_once() -> None:
    """Scenario 68, unsloth PR#5172: CUDA numbers what the container has."""
    masks = {"NVIDIA_VISIBLE_DEVICES": "GPU-n1,GPU-n3", "CUDA_VISIBLE_DEVICES": "1"}
    runtime_did = answers(nvidia(1), nvidia(3))

    for told in (FOUR, runtime_did):
        assert [device.identity for device in roll(told, **masks).usable] == ["GPU-n3"]


def test_models_count_gpus_and_do_not_name_them() -> None:
    found = roll(FOUR, NVIDIA_VISIBLE_DEVICES="GPU-n2,GPU-n3")
    named = [model(f"by-{at}", gpu_ids=(name,)) for at, name in enumerate(("0", "GPU-n2"))]
    held = {"runs": holds(1, spec="s1")}

    made = claims(
        [model("pair", gpus=2), *named, model("runs", gpu_ids=("1",))],
        found,
        {named.name: held.get(named.name, ()) for named in [model("runs")]},
    )

    assert [device.identity for device in made[model("pair").name].devices] == ["GPU-n2", "GPU-n3"]
    for name in ("by-0", "by-1"):
        assert "write gpus: N" in (made[model(name).name].refusal or "")
    # What runs stays.
    assert made[model("runs").name].refusal is None


def test_without_a_gift_models_run_on_the_cpu_and_it_is_said() -> None:
    found = roll(NO_LIBRARY)

    made = claims([model("any"), model("one", gpus=1)], found, {})

    assert found.hints == (NONE_GIVEN,)
    assert made[model("any").name].refusal is None
    assert made[model("any").name].devices == ()
    assert "cannot give it 1 GPU" in (made[model("one").name].refusal or "")


def test_a_driver_that_does_not_answer_is_no_missing_gift() -> None:
    """Scenario 70, ollama#3647: nothing falls to the CPU in silence."""
    found = roll(HANGS)

    assert found.failed
    assert found.hints == ()
    assert claims([model("any")], found, {})[model("any").name].refusal is not None


def test_gpus_that_are_lost_were_given() -> None:
    before = roll(answers(nvidia(1)))

    after = enrolled(before, answers(amd(2), by=Step.AMDSMI), {}, mode=GpuMode.PLUGIN)
    gone = enrolled(before, [Answer(step=Step.NVML, reason="0 GPUs", cause=Cause.NO_DEVICE)], {})

    assert NONE_GIVEN not in (*after.hints, *gone.hints)
