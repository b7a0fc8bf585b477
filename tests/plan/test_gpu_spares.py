"""Which GPUs a changed model is given, so that its new process is there before the old one goes."""

from dataclasses import replace

import pytest

from reconciler.plan.desired import DesiredModel, Strategy
from reconciler.plan.gpu_claims import claims
from reconciler.plan.gpu_holdings import Holding
from reconciler.plan.gpu_roll import Roll, enrolled
from reconciler.plan.ids import ModelName
from tests.plan.gpu import answers, nvidia
from tests.plan.test_gpu_claims import FOUR, GIB, holds, model

UNLIKE = enrolled(None, answers(nvidia(0), nvidia(1, name="NVIDIA L4"), nvidia(2)), {})
A = ModelName("a")


def serves(*buses: int, share: float | None = None, spec: str = "s0") -> tuple[Holding, ...]:
    return tuple(replace(each, serves=True, share=share) for each in holds(*buses, spec=spec))


def given(
    *models: DesiredModel,
    roll: Roll = FOUR,
    staying: tuple[ModelName, ...] = (),
    **held: tuple[Holding, ...],
) -> dict[ModelName, tuple[list[int | None], bool]]:
    """Indices by model, and whether they are to spare."""
    made = claims(models, roll, {ModelName(name): each for name, each in held.items()}, staying)
    return {
        name: ([device.index for device in claim.devices], claim.to_spare)
        for name, claim in made.items()
    }


def test_a_changed_model_is_given_others_that_nobody_claims_or_holds() -> None:
    found = given(model(gpus=1), model("b", gpus=1), a=serves(0), c=serves(2))

    assert found == {"a": ([3], True), "b": ([1], False)}


@pytest.mark.parametrize(
    "held", [holds(0), serves(0, spec="s1")], ids=["serves nothing yet", "is not changed"]
)
def test_it_keeps_its_own_where_nothing_is_to_be_replaced(held: tuple[Holding, ...]) -> None:
    assert given(model(gpus=1), a=held) == {"a": ([0], False)}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_it_keeps_its_own_where_there_are_not_so_many_or_it_is_not_wanted(
    strategy: Strategy,
) -> None:
    three = replace(model(gpus=3), strategy=strategy)
    one = replace(model(gpus=1), strategy=strategy)

    assert given(three, a=serves(0, 1, 2)) == {"a": ([0, 1, 2], False)}
    assert given(one, a=serves(0))[A][1] is (strategy is not Strategy.RECREATE)
    assert given(one, a=serves(0), staying=(A,)) == {"a": ([0], False)}


def test_named_ones_are_as_they_are_named() -> None:
    assert given(model(gpu_ids=("0",)), a=serves(0)) == {"a": ([0], False)}


def test_others_are_of_the_kind_that_it_has() -> None:
    assert given(model(gpus=1), roll=UNLIKE, a=serves(0)) == {"a": ([2], True)}


def test_a_share_stays_where_both_fit_and_moves_where_they_do_not() -> None:
    small, large = model(gpus=1, gpu_memory="0.4"), model(gpus=1, gpu_memory="0.6")
    beside = model("b", gpus=1, gpu_memory="0.3")

    assert given(small, a=serves(0, share=0.4)) == {"a": ([0], False)}
    assert given(large, a=serves(0, share=0.6)) == {"a": ([1], True)}
    assert given(small, beside, a=serves(0, share=0.4), b=serves(0, share=0.3, spec="s1")) == {
        "a": ([1], True),
        "b": ([0], False),
    }


def test_what_a_surge_has_begun_keeps_its_gpus_and_leaves_none_of_either_to_others() -> None:
    both = (*serves(0), *holds(1, spec="s1"))
    pair = model("b", gpus=2)

    assert given(model(gpus=1), pair, a=both) == {"a": ([1], False), "b": ([2, 3], False)}


def test_a_size_is_a_share_of_each() -> None:
    assert FOUR.usable[0].memory_total_bytes == GIB * 80
    assert given(model(gpus=1, gpu_memory="32GiB"), a=serves(0, share=0.4)) == {"a": ([0], False)}
