"""From `gpu_ids` and `gpus` to devices."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.gpu_claims import Claim, claims
from reconciler.plan.gpu_holdings import Holding
from reconciler.plan.gpu_roll import Roll, enrolled
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.ids import GpuUuid, ModelName, Place, SpecHash
from tests.plan.gpu import amd, answers, nvidia

GIB = 1024**3
FOUR = enrolled(None, answers(*(nvidia(bus, memory_total_bytes=80 * GIB) for bus in range(4))), {})
MIXED = enrolled(None, answers(nvidia(0), amd(1), amd(2)), {})
NONE = enrolled(None, [Answer(step=Step.NVML, reason="no library", cause=Cause.ABSENT)], {})
MASKED = enrolled(None, answers(nvidia(0), nvidia(1)), {"CUDA_VISIBLE_DEVICES": "1"})
SLICED = enrolled(None, answers(nvidia(0, uuid="MIG-0", mig_of="GPU-0")), {})
UNHEARD = enrolled(None, [Answer(step=Step.NVML, reason="hung", cause=Cause.HUNG)], {})


def model(name: str = "a", **spec: Any) -> DesiredModel:
    own = {key: spec.pop(key) for key in ("priority", "enabled") if key in spec}
    return DesiredModel(
        name=ModelName(name),
        spec=ModelSpec(source="gguf/x_y", **spec),
        spec_hash=SpecHash("s1"),
        place=Place(file="m.yaml", line=1, column=1),
        **own,
    )


def holds(*buses: int, spec: str = "s0") -> tuple[Holding, ...]:
    gpus = tuple(GpuUuid(f"GPU-n{bus}") for bus in buses)
    return (Holding(spec_hash=SpecHash(spec), gpus=gpus),)


def made(
    *models: DesiredModel, roll: Roll | None = FOUR, **held: tuple[Holding, ...]
) -> dict[ModelName, Claim]:
    return claims(models, roll, {ModelName(name): value for name, value in held.items()})


def given(*models: DesiredModel, roll: Roll = FOUR, **held: tuple[Holding, ...]) -> dict[str, Any]:
    """Indices by model; the refusal where there is one."""
    return {
        name: claim.refusal or claim.unknown or [device.index for device in claim.devices]
        for name, claim in made(*models, roll=roll, **held).items()
    }


@pytest.mark.parametrize(
    ("ids", "indices"),
    [
        (("0",), [0]),
        (("3", "1"), [3, 1]),
        (("GPU-n2",), [2]),
        (("gpu-N2",), [2]),
        (("0000:02:00.0", "00000000:03:00.0"), [2, 3]),
        (("2:0.0",), [2]),
    ],
)
def test_an_index_a_uuid_and_a_pci_address_name_a_gpu(
    ids: tuple[str, ...], indices: list[int]
) -> None:
    assert given(model(gpu_ids=ids)) == {"a": indices}


@pytest.mark.parametrize(
    ("spec", "roll", "said"),
    [
        ({"gpu_ids": ("7",)}, FOUR, "there is no GPU 7; this node has 0: GPU-n0 at 0000:00:00.0"),
        ({"gpu_ids": ("GPU-x",)}, NONE, "none that can be used (nvml: no library)"),
        (
            {"gpu_ids": ("1",)},
            MASKED,
            "no GPU 1; this node has 0: GPU-n1 at 0000:01:00.0, NVIDIA H100; not used are "
            "GPU-n0 at 0000:00:00.0: hidden by CUDA_VISIBLE_DEVICES=1",
        ),
        ({"gpu_ids": ("GPU-0",)}, SLICED, "GPU-0 is in MIG mode: name one of MIG-0"),
        ({"gpu_ids": ("1", "GPU-n1")}, FOUR, "GPU-n1 is GPU 1 (GPU-n1), which stands there twice"),
        ({"gpus": 5}, FOUR, "cannot give it 5 GPUs: this node has 0: GPU-n0"),
        ({"gpus": 1}, NONE, "cannot give it 1 GPU: this node has none that can be used (nvml: no"),
        ({"gpus": 2, "backend": "vllm-cuda"}, MIXED, "2 GPUs of nvidia: this node has 0: GPU-n0"),
        ({"gpus": 3}, MIXED, "cannot give it 3 GPUs of one kind; this node has 0: GPU-n0"),
        ({}, UNHEARD, "cannot tell whether there are GPUs: nvml: hung; gpus: 0 is the CPU"),
    ],
)
def test_what_cannot_be_given_is_refused_with_what_is_there(
    spec: dict[str, Any], roll: Roll, said: str
) -> None:
    (refusal,) = given(model(**spec), roll=roll).values()

    assert said in refusal


def test_a_gpu_that_cannot_be_used_is_refused_with_the_reason() -> None:
    masked = enrolled(None, answers(nvidia(1), nvidia(2)), {"CUDA_VISIBLE_DEVICES": "1"})
    lost = enrolled(FOUR, answers(nvidia(0)), {})

    assert "not used: hidden by CUDA" in given(model(gpu_ids=("GPU-n1",)), roll=masked)["a"]
    assert "GPU 3 (GPU-n3) is not used: lost" in given(model(gpu_ids=("3",)), roll=lost)["a"]


def test_a_gpu_that_is_lost_from_the_start_is_told_to_whoever_asks_for_more() -> None:
    nameless = nvidia(0, uuid=None, pci=None, order=1, unusable="lost: GPU is lost")
    some, none = (
        enrolled(None, answers(nvidia(0), nameless), {}),
        enrolled(None, answers(nameless), {}),
    )

    for spec in ({"gpu_ids": ("GPU-n9",)}, {"gpus": 2}):
        assert "not used are nvidia:1: lost: GPU is lost" in given(model(**spec), roll=some)["a"]
        assert "is lost: GPU is lost" in given(model(**spec), roll=none)["a"]


def test_an_address_of_several_mig_instances_names_none() -> None:
    slices = [
        nvidia(1, uuid=GpuUuid(f"MIG-{slot}"), mig_of=GpuUuid("GPU-n1"), slot=slot)
        for slot in (0, 1)
    ]
    roll = enrolled(None, answers(*slices), {})

    said = given(model("a", gpu_ids=("1:0.0",)), model("b", gpu_ids=("MIG-1",)), roll=roll)

    assert said["a"].endswith("several are at 1:0.0: name one of MIG-0, MIG-1")
    assert said["b"] == [1]


def test_several_gpus_are_whole_ones_whatever_instances_come_before_them() -> None:
    """CUDA shows a process only one MIG instance, so several never work together."""
    slices = [
        nvidia(0, uuid=GpuUuid(f"MIG-{slot}"), mig_of=GpuUuid("GPU-n0"), slot=slot, name="1g.10gb")
        for slot in (0, 1)
    ]
    roll = enrolled(None, answers(*slices, nvidia(1), nvidia(2), nvidia(3)), {})
    pair, single = model("pair", gpus=2), model("single", gpus=1)

    assert given(pair, single, roll=roll) == {"pair": [2, 3], "single": [0]}
    assert given(model("a", tensor_parallel_size=3), roll=roll) == {"a": [2, 3, 4]}
    assert given(model("a", gpus=2, gpu_memory="0.5"), roll=roll) == {"a": [2, 3]}


def test_several_gpus_are_waited_for_where_one_is_taken_and_instances_are_free() -> None:
    slices = [
        nvidia(0, uuid=GpuUuid(f"MIG-{slot}"), mig_of=GpuUuid("GPU-n0"), slot=slot, name="1g.10gb")
        for slot in (0, 1)
    ]
    roll = enrolled(None, answers(*slices, nvidia(1), nvidia(2)), {})
    pair, before = model("pair", gpus=2), model("first", gpu_ids=("2",), priority=1)

    assert (
        "1 of 2 have room; claimed are GPU 2 (GPU-n1) by first"
        in given(before, pair, roll=roll)["pair"]
    )
    assert given(pair, roll=roll) == {"pair": [2, 3]}
    assert given(model("a", gpus=3), roll=roll)["a"].endswith(
        "and 2 more (see `xgen-model gpus`); of MIG instances a model can have only one"
    )


@pytest.mark.parametrize(
    ("spec", "roll", "indices"),
    [
        ({}, FOUR, [0]),
        ({"gpus": 0}, FOUR, []),
        ({"backend": "llama-server-cpu"}, FOUR, []),
        ({"backend": "xllamacpp"}, FOUR, []),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, FOUR, [0, 1, 2, 3]),
        ({}, NONE, []),
        ({"gpus": 0}, UNHEARD, []),
        ({"gpus": 2}, MIXED, [1, 2]),
        ({"backend": "vllm-rocm"}, MIXED, [1]),
    ],
)
def test_how_many_gpus_a_model_gets(spec: dict[str, Any], roll: Roll, indices: list[int]) -> None:
    assert given(model(**spec), roll=roll) == {"a": indices}


def test_nothing_is_given_before_somebody_has_looked_but_for_the_cpu() -> None:
    (auto, cpu) = made(model("a"), model("b", gpus=0), roll=None).values()

    assert (auto.unknown, auto.refusal) == ("which GPUs there are is being asked", None)
    assert cpu == Claim()


def test_free_ones_are_given_in_order_of_priority_and_name_around_what_is_named() -> None:
    models = (
        model("a", gpus=1),
        model("b", gpus=1),
        model("c", gpu_ids=("0",)),
        model("d", gpus=1, priority=1),
        model("off", gpu_ids=("3",), enabled=False),
    )

    assert given(*models) == {"c": [0], "d": [1], "a": [2], "b": [3]}


def test_more_than_are_free_is_refused_with_who_has_them() -> None:
    said = given(model("a", gpus=3), model("b", gpus=2))

    assert said["a"] == [0, 1, 2]
    assert said["b"] == (
        "cannot give it 2 GPUs: 1 of 4 have room; claimed are GPU 0 (GPU-n0) by a, "
        "GPU 1 (GPU-n1) by a, GPU 2 (GPU-n2) by a"
    )


def test_a_process_keeps_what_it_has_whatever_the_manifest_would_give_it_today() -> None:
    """R4: a resolution holds while the process lives."""
    models = (model("a", gpus=1), model("b", gpus=1), model("c", gpu_ids=("2",)))

    assert given(*models, b=holds(0, spec="s1"), c=holds(3, spec="s1")) == {
        "a": [1],
        "b": [0],
        "c": [3],
    }


def test_a_changed_model_stays_on_its_own_gpus_and_takes_more_beside_them() -> None:
    assert given(model("a", gpus=2), model("b", gpus=1), a=holds(2, 3)) == {"a": [2, 3], "b": [0]}
    assert given(model("a", gpus=3), a=holds(2, 3)) == {"a": [0, 2, 3]}
    assert given(model("a", gpus=1), model("b", gpu_ids=("3",)), a=holds(3))["a"] == [0]


def test_what_others_leave_is_taken_last() -> None:
    assert given(model("a", gpus=1), gone=holds(0)) == {"a": [1]}
    assert given(model("a", gpus=4), gone=holds(0)) == {"a": [0, 1, 2, 3]}


def last_good(name: str = "a", **spec: Any) -> DesiredModel:
    return replace(model(name, priority=9, **spec), instead_of=SpecHash("s9"))


def test_what_was_last_good_takes_only_what_nobody_claims() -> None:
    """R7: also before a model of lower priority, and where it runs already."""
    back = last_good(gpu_ids=("0",))
    taken = "GPU 0 (GPU-n0) is claimed by b, which comes first"
    assert given(back, model("b", gpu_ids=("1",))) == {"a": [0], "b": [1]}
    assert given(back, model("b", gpu_ids=("0",))) == {"a": taken, "b": [0]}
    running = holds(0, spec="s1")
    assert given(back, model("b", gpu_ids=("0",)), a=running) == {"a": taken, "b": [0]}
    assert given(back, model("b", gpu_ids=("1",)), a=running) == {"a": [0], "b": [1]}
    assert given(last_good(gpus=1), model("b", gpus=4))["b"] == [0, 1, 2, 3]


def test_what_was_last_good_shares_a_gpu_where_all_fit() -> None:
    back = last_good(gpu_ids=("0",), gpu_memory="0.5")
    fits, large = (model("b", gpu_ids=("0",), gpu_memory=share) for share in ("0.5", "0.6"))
    assert given(back, fits) == {"a": [0], "b": [0]}
    assert given(back, large)["b"] == [0]
    assert "is claimed by b" in given(back, large)["a"]


def test_models_share_a_gpu_only_where_all_are_taken_and_the_sum_fits() -> None:
    two = replace(FOUR, devices=FOUR.devices[:2])
    shared = [model(name, gpus=1, gpu_memory="40GiB") for name in "abcde"]

    said = given(*shared, roll=two)

    assert [said[name] for name in "abcd"] == [[0], [1], [0], [1]]
    assert "0 of 2 have room" in said["e"]
    assert given(model("x", gpus=1), *shared[:2], roll=two) == {"x": [0], "a": [1], "b": [1]}


def test_a_share_in_bytes_is_told_as_a_part_of_the_gpu() -> None:
    shared = model(gpus=1, gpu_memory="20GiB")

    put = made(shared)[ModelName("a")].put_into(shared)

    assert (put.gpus, put.gpu_share) == (("GPU-n0",), 0.25)
    assert made(model())[ModelName("a")].put_into(model()).gpu_share is None


def test_more_than_a_gpu_has_in_all_is_refused_and_a_larger_one_is_taken() -> None:
    small, large = (nvidia(bus, memory_total_bytes=size * GIB) for bus, size in ((1, 24), (2, 80)))
    roll = enrolled(None, answers(small, large), {})

    assert given(model(gpus=1, gpu_memory="40GiB"), roll=roll) == {"a": [1]}
    assert given(
        model("a", gpus=2, gpu_memory="40GiB"),
        model("b", gpus=1, gpu_memory="500GiB"),
        model("c", gpu_ids=("0",), gpu_memory="25GiB"),
        model("d", gpus=1, gpu_memory="80GiB"),
        roll=roll,
    ) == {
        "a": "cannot give it 2 GPUs with 40GiB each: GPU 0 (GPU-n1) has 24.0 GiB in all",
        "b": "cannot give it 1 GPU with 500GiB each: "
        "GPU 0 (GPU-n1) has 24.0 GiB in all, GPU 1 (GPU-n2) has 80.0 GiB in all",
        "c": "cannot give it 25GiB of each GPU: GPU 0 (GPU-n1) has 24.0 GiB in all",
        "d": [1],
    }
