"""How long a model waits for the GPU that it was given."""

from reconciler.loop.promises import PATIENCE_SECONDS, Promises
from reconciler.plan.gpu_claims import claims
from reconciler.plan.gpu_holdings import Holding
from reconciler.plan.ids import ModelName
from tests.plan.test_gpu_claims import FOUR, holds, model

B = ModelName("b")
FULL = {ModelName(name): holds(bus) for bus, name in enumerate("wxyz")}
Held = dict[ModelName, tuple[Holding, ...]]


def given(promises: Promises, held: Held, now: float) -> list[int | None]:
    models = (model("b", gpus=1),)
    made = claims(models, FOUR, held, (), promises.of_now(held, now))
    promises.note(models, made, (), held, now)
    return [device.index for device in made[B].devices]


def test_another_is_taken_where_its_holder_does_not_leave() -> None:
    promises, late = Promises(), PATIENCE_SECONDS
    stuck = {name: held for name, held in FULL.items() if name != "y"}

    assert given(promises, FULL, 0.0) == [0]
    assert given(promises, stuck, late - 1) == [0]
    assert not promises.lapses(stuck, late - 1)
    assert promises.lapses(stuck, late)
    assert given(promises, stuck, late) == [2]
    assert given(promises, {}, late + 1) == [2]


def test_what_nobody_else_holds_is_waited_for_as_long_as_it_takes() -> None:
    promises = Promises()

    assert given(promises, {ModelName("w"): holds(0)}, 0.0) == [1]
    assert not promises.lapses({}, 10 * PATIENCE_SECONDS)
    assert given(promises, {}, 10 * PATIENCE_SECONDS) == [1]


def test_what_has_started_is_promised_nothing_any_more() -> None:
    promises, runs = Promises(), {B: holds(1, spec="s1")}
    given(promises, {ModelName("w"): holds(0)}, 0.0)

    assert given(promises, runs, 1.0) == [1]
    assert promises.of_now(runs, 1.0) == {}
