"""What a model was given it keeps until it has started."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from reconciler.plan.desired import DesiredModel, Strategy
from reconciler.plan.gpu_claims import Claim, claims
from reconciler.plan.gpu_holdings import Holding, Promise
from reconciler.plan.ids import ModelName
from reconciler.plan.shares import fit_together, share_of
from tests.plan.test_gpu_claims import FOUR, holds, model
from tests.plan.test_gpu_spares import serves

Held = dict[ModelName, tuple[Holding, ...]]
A, B = ModelName("a"), ModelName("b")


def promises(models: tuple[DesiredModel, ...], made: dict[ModelName, Claim]) -> Any:
    return {
        each.name: Promise(
            spec_hash=each.spec_hash,
            gpus=tuple(device.identity for device in made[each.name].devices),
            share=share_of(each.spec.gpu_memory, made[each.name].devices),
            to_spare=made[each.name].to_spare,
        )
        for each in models
        if made[each.name].devices
    }


def indices(made: dict[ModelName, Claim]) -> dict[ModelName, list[int | None]]:
    return {name: [device.index for device in claim.devices] for name, claim in made.items()}


def then(
    models: tuple[DesiredModel, ...],
    before: Held,
    after: Held,
    *more: DesiredModel,
) -> dict[ModelName, list[int | None]]:
    """What they get after they were given something."""
    first = claims(models, FOUR, before)
    return indices(claims((*models, *more), FOUR, after, (), promises(models, first)))


SPECS = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(1, 3)}),
    st.fixed_dictionaries({"gpus": st.just(1), "gpu_memory": st.sampled_from(["0.4", "0.6"])}),
    st.fixed_dictionaries({"gpu_ids": st.sampled_from([("0",), ("3",), ("1", "2")])}),
)
MODELS = st.lists(st.tuples(SPECS, st.integers(0, 1)), min_size=1, max_size=5).map(
    lambda specs: tuple(
        model("abcde"[at], priority=priority, **spec) for at, (spec, priority) in enumerate(specs)
    )
)
GONE = st.dictionaries(
    st.sampled_from([ModelName(name) for name in ("x", "y", "z")]),
    st.integers(0, 3).map(lambda bus: holds(bus)),
)


@drawn(models=MODELS, gone=GONE, left=st.sets(st.sampled_from(["x", "y", "z"])))
def test_what_leaves_moves_nobody_who_has_been_given_something(
    models: tuple[DesiredModel, ...], gone: Held, left: set[str]
) -> None:
    before = indices(claims(models, FOUR, gone))
    staying = {name: there for name, there in gone.items() if name not in left}

    assert then(models, gone, staying) == before


@drawn(models=MODELS, before=GONE, more=MODELS)
def test_no_gpu_is_counted_out_to_two_by_what_was_promised(
    models: tuple[DesiredModel, ...], before: Held, more: tuple[DesiredModel, ...]
) -> None:
    """R5, R7: whoever is named on one, the counted ones are not beside it."""
    renamed = tuple(replace(each, name=ModelName(f"n{each.name}")) for each in more)
    first = claims(models, FOUR, before)
    made = claims((*models, *renamed), FOUR, {}, (), promises(models, first))

    for device in FOUR.usable:
        on_it = [each for each in (*models, *renamed) if device in made[each.name].devices]
        shares = [share_of(each.spec.gpu_memory, (device,)) for each in on_it]
        assert fit_together(shares) or all(each.spec.gpu_ids for each in on_it)


def test_a_named_claim_and_one_that_comes_first_are_stronger() -> None:
    one = (model("b", gpus=1),)
    first = model("a", gpus=4, priority=1)

    assert then(one, {}, {}, model("a", gpus=1)) == {A: [1], B: [0]}
    assert then(one, {}, {}, model("a", gpu_ids=("0",))) == {A: [0], B: [1]}
    assert then(one, {}, {}, first) == {A: [0, 1, 2, 3], B: []}


def test_a_gpu_that_its_holder_may_keep_is_not_waited_for_where_another_is_free() -> None:
    """What is to move to a GPU that another holds stays where it is."""
    moves = model("a", gpu_ids=("3",))
    there = {A: holds(0), ModelName("x"): holds(1), ModelName("y"): holds(2)}
    promised = {B: Promise(spec_hash=model().spec_hash, gpus=holds(0)[0].gpus)}

    made = claims((moves, model("b", gpus=1)), FOUR, {A: holds(0)}, (), promised)

    assert indices(made)[B] == [1]
    assert indices(claims((moves, model("b", gpus=1)), FOUR, there))[B] == [1]


@pytest.mark.parametrize(
    ("strategy", "kept"), [(Strategy.AUTO, True), (Strategy.SURGE, False)], ids=str
)
def test_what_was_to_be_replaced_in_its_place_is_unless_it_waits_for_others(
    strategy: Strategy, kept: bool
) -> None:
    changed = (replace(model(gpus=1), strategy=strategy),)
    full = {ModelName(name): holds(bus) for bus, name in enumerate("xyz", start=1)}

    after = then(changed, {A: serves(0), **full}, {A: serves(0)})

    assert after == {A: [0] if kept else [1]}


def test_gpus_to_spare_stay_the_same_until_it_has_started_there() -> None:
    changed = (model(gpus=1),)

    assert then(changed, {A: serves(0), B: holds(1)}, {A: serves(0)}) == {A: [2]}
    begun = {A: (*serves(0), *holds(2, spec="s1"))}
    assert then(changed, {A: serves(0), B: holds(1)}, begun) == {A: [2]}


def test_gpus_to_spare_stay_the_same_where_there_is_room_beside_the_old_one_by_then() -> None:
    changed = (model(gpus=1, gpu_memory="0.4"),)
    there = {A: serves(0, share=0.4), B: serves(0, share=0.4)}

    assert then(changed, there, {A: there[A]}) == {A: [1]}


def test_who_had_to_move_does_not_go_back_once_its_own_is_free_again() -> None:
    first, second = model(gpus=1), model("b", gpus=1, gpu_memory="0.4")
    there = {A: serves(0, share=0.4), B: serves(0, share=0.4)}
    full = {ModelName(name): holds(bus) for bus, name in enumerate("xyz", start=1)}
    begun = {**there, ModelName("x"): holds(1), A: (*there[A], *holds(2, spec="s1"))}

    assert then((first, second), {**there, **full}, begun) == {A: [2], B: [1]}


def test_who_was_stopped_for_its_successor_gets_what_another_still_leaves() -> None:
    """Two that move on, and a third that waits for what they leave."""
    moves = (model("a", gpu_ids=("3",), priority=1), model("b", gpus=1, gpu_memory="0.6"))
    waits = model("f", gpus=1)
    rest = {ModelName("c"): serves(1, spec="s1"), ModelName("d"): serves(2, spec="s1")}
    stay = (model("c", gpus=1), model("d", gpus=1))
    models = (*moves, waits, *stay)
    serving = {A: serves(0), B: serves(3, share=0.6), **rest}
    stopped = {A: tuple(replace(each, serves=False, leaves=True) for each in serves(0)), **rest}

    assert then(models, serving, stopped)[B] == [0]
