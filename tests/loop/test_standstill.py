"""A tick that sees nothing new reckons nothing anew; one that may not stand still does not."""

from dataclasses import replace

import pytest

from reconciler.loop.gpus import Gpus
from reconciler.loop.intent import Understanding
from reconciler.loop.memory import Memory
from reconciler.loop.observation import Seen
from reconciler.loop.standstill import Scene, standstill
from reconciler.plan.actions import FetchFiles, Plan
from reconciler.plan.desired import Desired
from reconciler.plan.ids import NodeName, SpecHash
from reconciler.plan.memory import HOST, Room
from reconciler.plan.observed import EffectKind, InFlight, Observed, ObservedModel
from tests.loop.book_entries import M, view
from tests.plan.build import observed_model

NOTHING = Seen(views={}, in_flight={}, leftovers=())


def scene(*, suspend: bool = False, seen: Seen = NOTHING) -> Scene:
    return Scene(
        understanding=Understanding(
            desired=Desired(node=NodeName("n"), revision="r", suspend=suspend)
        ),
        looks={},
        gpus=Gpus(),
        seen=seen,
        doubts=(),
        unkept=(),
        over_budget=None,
        noticed={},
        memory=None,
        epoch="1970",
        ending=False,
    )


def there(*models: ObservedModel) -> Observed:
    return Observed(processes_read=True, models={model.name: model for model in models})


FAILED = observed_model("m", {"failure": {"during": "load", "reason": "so"}})
LOADING = observed_model("m", {"processes": [{"pid": 1}]})
LOADED = observed_model("m", {"processes": [{"pid": 1, "loaded": 1.0}]})


def test_nothing_new_is_the_same_scene() -> None:
    one = scene()
    seen = Seen(views={}, in_flight={}, leftovers=())
    assert replace(one, seen=seen).is_as(one)


@pytest.mark.parametrize(
    "change",
    [
        {"understanding": Understanding()},
        {"looks": {M: None}},
        {"gpus": Gpus()},
        {"seen": replace(NOTHING, views={M: (view(),)})},
        {"seen": replace(NOTHING, engines_failure="OSError: why")},
        {"doubts": ("pid 1 is doubtful",)},
        {"noticed": {M: None}},
        {"memory": Memory(rooms={HOST: Room(total_bytes=2, free_bytes=1)}, held={})},
        {"epoch": "2026"},
        {"ending": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_is_new_is_another_scene(change: dict[str, object]) -> None:
    one = scene()
    assert not replace(one, **change).is_as(one)  # type: ignore[arg-type]


def test_a_backend_that_has_loaded_is_another_scene() -> None:
    one = scene(seen=replace(NOTHING, views={M: (view(),)}))
    other = replace(one, seen=replace(NOTHING, views={M: (view(loaded=True),)}))
    assert not other.is_as(one)


def test_what_serves_stands_still_suspended_or_not() -> None:
    for suspend in (False, True):
        now = scene(suspend=suspend)
        found = standstill(now, there(LOADED), Plan())
        assert found is not None
        assert (found.scene, found.made) == (now, Plan())


def test_a_plan_that_acts_does_not_stand_still() -> None:
    fetch = FetchFiles(model=M, spec_hash=SpecHash("1:a"), reason="missing")
    assert standstill(scene(), there(), Plan(actions=(fetch,))) is None


def test_an_effect_under_way_does_not_stand_still() -> None:
    """Its progress is reported at each tick."""
    effect = InFlight(kind=EffectKind.FETCH, spec_hash=SpecHash("1:a"), since=0.0)
    assert standstill(scene(seen=replace(NOTHING, in_flight={M: effect})), there(), Plan()) is None


def test_a_retry_or_deadline_to_come_does_not_stand_still() -> None:
    assert standstill(scene(), there(FAILED), Plan(next_at=9.0)) is None


@pytest.mark.parametrize("model", [FAILED, LOADING], ids=["failed", "loading"])
def test_a_suspended_node_stands_still_only_where_no_time_runs_out(model: ObservedModel) -> None:
    """Its plan names no time at which there would be something to do."""
    assert standstill(scene(suspend=True), there(model), Plan()) is None
    assert standstill(scene(), there(model), Plan()) is not None
