"""What would be done from here on, by the planner alone."""

from dataclasses import replace

import pytest

from reconciler.plan.actions import FetchFiles, StartBackend, StopBackend
from reconciler.plan.desired import Desired, DesiredModel, Strategy
from reconciler.plan.ids import FilesDigest, Instance, ModelName, NodeName, Nonce, SpecHash
from reconciler.plan.memory import HOST, Need, Room
from reconciler.plan.observed import (
    EffectKind,
    InFlight,
    Observed,
    ObservedModel,
    ObservedProcess,
)
from reconciler.plan.rehearsal import Rehearsal, files_of, planner_alone, rehearse
from tests.plan.world import desired_model

M = ModelName("m")
GIB = 2**30
NOW = 100.0
HERE = files_of(FilesDigest("f1"))


def process(version: int = 1, *, loaded: bool = True, held: int = 0) -> ObservedProcess:
    return ObservedProcess(
        nonce=Nonce("n"),
        pid=7,
        instance=Instance(spec_hash=SpecHash(f"1:v{version}"), files_digest=FilesDigest("f1")),
        started_at=NOW - 2.0,
        loaded_at=NOW - 1.0 if loaded else None,
        held={HOST: held},
    )


def rehearsed(
    *models: DesiredModel, seen: ObservedModel | None = None, free: int | None = None
) -> Rehearsal:
    there = Observed(
        processes_read=True,
        models={M: seen} if seen is not None else {},
        rooms={HOST: Room(total_bytes=10 * GIB, free_bytes=free)} if free is not None else {},
    )
    wanted = Desired(node=NodeName("n"), revision="r", models=models)
    return rehearse(there, planner_alone(wanted, NOW), NOW)


def kinds(made: Rehearsal) -> list[type]:
    return [type(each) for each in made.of(M)]


def test_files_come_first_and_nothing_is_left_to_do_at_the_end() -> None:
    made = rehearsed(desired_model("m"))

    assert (kinds(made), made.at_rest) == ([FetchFiles, StartBackend], True)
    assert made.last.plan.actions == ()


def test_a_process_takes_what_it_needs_and_gives_back_what_it_held() -> None:
    recreated = desired_model("m", 2, strategy=Strategy.RECREATE)
    seen = ObservedModel(
        name=M,
        processes=(process(held=3 * GIB),),
        files=HERE,
        needs={HOST: Need(weights_bytes=4 * GIB, kv_cache_bytes=GIB)},
    )
    made = rehearsed(recreated, seen=seen, free=4 * GIB)

    assert kinds(made) == [StopBackend, StartBackend]
    assert made.free_bytes == {HOST: 2 * GIB}


def test_what_finds_no_room_beside_the_old_one_stops_that_first() -> None:
    seen = ObservedModel(
        name=M,
        processes=(process(held=3 * GIB),),
        files=HERE,
        needs={HOST: Need(weights_bytes=4 * GIB, kv_cache_bytes=0)},
    )
    assert kinds(rehearsed(desired_model("m", 2), seen=seen, free=5 * GIB)) == [
        StartBackend,
        StopBackend,
    ]
    assert kinds(rehearsed(desired_model("m", 2), seen=seen, free=2 * GIB)) == [
        StopBackend,
        StartBackend,
    ]


@pytest.mark.parametrize("kind", [EffectKind.FETCH, EffectKind.START])
def test_what_is_under_way_succeeds_and_is_no_action(kind: EffectKind) -> None:
    model = desired_model("m")
    effect = InFlight(kind=kind, spec_hash=model.spec_hash, since=1.0)
    seen = ObservedModel(name=M, in_flight=effect)
    if kind is EffectKind.START:
        seen = replace(seen, files=HERE)
    made = rehearsed(model, seen=seen)

    assert kinds(made) == ([StartBackend] if kind is EffectKind.FETCH else [])
    assert len(made.last.observed.models[M].processes) == 1


def test_what_loads_has_loaded_by_the_end() -> None:
    seen = ObservedModel(name=M, processes=(process(loaded=False),), files=HERE)
    made = rehearsed(desired_model("m"), seen=seen)

    assert made.actions == ()
    assert made.last.observed.models[M].processes[0].loaded_at == NOW
