"""Rails only ever hold back; scenarios 40, 41 and 44."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.actions import Plan, StopBackend
from reconciler.plan.case import cases
from reconciler.plan.desired import Desired, Strategy, WaitingRevision
from reconciler.plan.ids import FilesDigest, ModelName, Nonce
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.observed import Hang, ObservedProcess
from reconciler.plan.phase import State
from reconciler.plan.planner import plan
from reconciler.plan.rails import railed
from reconciler.plan.step import next_step
from reconciler.plan.stop_limit import DEFAULT_STOP_LIMIT
from reconciler.plan.suspension import Suspension
from tests.plan.world import World, desired_model

A, B, C, D = map(ModelName, "abcd")
CLOSED = Maintenance(is_open=False, changes_at=5000.0, opens="Sat 2026-12-05 02:00 UTC")
OPEN = Maintenance(is_open=True, changes_at=5000.0)
OF_A = Suspension(model=A, by="kim", reason="driver update", since="t")
CHANGES = st.sampled_from(["new", "removed", "disabled", "kept", "hung", "crashed", "elsewhere"])
STRATEGIES = st.sampled_from(list(Strategy))


def serving(*names: ModelName, strategy: Strategy = Strategy.RECREATE, **world: object) -> World:
    """A world in which these are loaded."""
    made = World(
        manifest={name: desired_model(name, strategy=strategy) for name in names},
        processes_read=True,
        max_parallel_loads=len(names) + 1,
        **world,  # type: ignore[arg-type]
    )
    settle(made)
    assert all(each.state is State.LOADED for each in made.plan().outlook)
    return made


def settle(world: World) -> list[Plan]:
    """Each plan comes true until nothing more is begun."""
    made = [world.plan()]
    for _ in range(60):
        for action in made[-1].actions:
            world.begin(action)
        world.finish_well()
        made.append(world.plan())
        if not made[-1].actions and not world.under_way:
            break
    return made


def change(world: World, name: ModelName, how: str, strategy: Strategy) -> None:
    manifest = world.manifest or {}
    match how:
        case "new":
            manifest[name] = desired_model(name, 2, strategy=strategy)
        case "elsewhere":
            manifest[name] = desired_model(name, 2, strategy=strategy, gpus=("g0",))
        case "disabled":
            manifest[name] = desired_model(name, enabled=False)
        case "removed":
            del manifest[name]
        case "hung":
            world.hang(name, Hang(reason="no progress for 15 min", since=world.now))
        case "crashed":
            world.crash(name, world.processes[name][0])
        case _:
            pass


def reason(made: Plan, name: ModelName) -> str:
    shown = next(each for each in made.outlook if each.model == name)
    return f"{shown.reason}; {shown.target.reason if shown.target else ''}"


def test_a_suspended_model_is_left_as_it_is_and_the_others_go_on() -> None:
    world = serving(A, B)
    world.suspensions = (OF_A,)
    for name in (A, B):
        change(world, name, "new", Strategy.RECREATE)
        world.cached[name, desired_model(name, 2).spec_hash] = FilesDigest("f1")
    made = world.plan()

    assert [(type(each), each.model) for each in made.actions] == [(StopBackend, B)]
    assert [(type(each), each.model) for each in made.held] == [(StopBackend, A)]
    assert "suspended by kim (driver update)" in reason(made, A)


def test_a_suspended_model_that_crashes_stays_down() -> None:
    world = serving(A, B)
    world.suspensions = (OF_A,)
    for name in (A, B):
        change(world, name, "crashed", Strategy.AUTO)
    world.now += 3600

    assert [each.model for each in settle(world)[0].actions] == [B]
    assert A not in world.processes


@pytest.mark.parametrize("loaded", [False, True])
def test_a_surge_that_was_begun_ends_with_one_process(loaded: bool) -> None:
    """Suspended while the new process loads, or once it serves: the old one serves nobody then."""
    world = serving(A, strategy=Strategy.SURGE)
    (old,) = world.processes[A]
    change(world, A, "new", Strategy.SURGE)
    world.cached[A, desired_model(A, 2).spec_hash] = FilesDigest("f1")
    (start,) = world.plan().actions
    world.begin(start)
    if loaded:
        world.finish_well()
    world.suspensions = (OF_A,)

    made = settle(world)

    stops = [each for plan in made for each in plan.actions]
    assert [(type(each), getattr(each, "nonce", None)) for each in stops] == [
        (StopBackend, old.nonce)
    ]
    assert len(world.processes[A]) == 1
    assert made[-1].outlook[0].state is State.LOADED


def test_both_processes_of_a_surge_stay_where_neither_is_wanted_any_more() -> None:
    world = serving(A, strategy=Strategy.SURGE)
    change(world, A, "new", Strategy.SURGE)
    world.cached[A, desired_model(A, 2).spec_hash] = FilesDigest("f1")
    (start,) = world.plan().actions
    world.begin(start)
    world.finish_well()
    change(world, A, "removed", Strategy.SURGE)
    world.suspensions = (OF_A,)
    assert all(not plan.actions for plan in settle(world))
    assert len(world.processes[A]) == 2


@pytest.mark.parametrize("how", ["new", "removed", "disabled"])
def test_what_serves_is_stopped_in_a_window_only(how: str) -> None:
    world = serving(A)
    world.maintenance = CLOSED
    change(world, A, how, Strategy.RECREATE)
    made = settle(world)[-1]

    assert world.processes[A]
    assert made.next_at == CLOSED.changes_at
    assert "waits for the maintenance window that opens Sat 2026-12-05" in reason(made, A)
    assert [type(each) for each in made.held] == [StopBackend]
    before = world.processes[A]
    world.maintenance = OPEN
    settle(world)
    assert world.processes.get(A) != before


def test_a_change_without_a_gap_needs_no_window() -> None:
    world = serving(A, strategy=Strategy.SURGE)
    world.maintenance = CLOSED
    change(world, A, "new", Strategy.SURGE)
    settle(world)

    assert [each.instance.spec_hash for each in world.processes[A]] == ["1:v2"]


@pytest.mark.parametrize("how", ["hung", "crashed"])
def test_what_mends_a_fault_needs_no_window(how: str) -> None:
    world = serving(A)
    world.maintenance = CLOSED
    (before,) = world.processes[A]
    change(world, A, how, Strategy.RECREATE)
    for _ in range(3):
        world.now += 3600
        settle(world)

    (after,) = world.processes[A]
    assert after.nonce != before.nonce
    assert after.loaded_at is not None


def test_a_surge_without_room_waits_for_the_window_and_is_held() -> None:
    """What it would do instead costs the service."""
    world = serving(A, strategy=Strategy.AUTO)
    world.manifest = {A: desired_model(A, gpus=("g0",))}
    world.processes[A] = [
        ObservedProcess(
            nonce=Nonce("n9"),
            pid=9,
            instance=world.processes[A][0].instance,
            started_at=0.0,
            loaded_at=1.0,
            gpus=world.manifest[A].gpus,
        )
    ]
    world.manifest = {A: desired_model(A, 2, gpus=("g0",))}
    world.cached[A, world.manifest[A].spec_hash] = FilesDigest("f1")
    free = world.plan()
    world.maintenance = CLOSED
    held = world.plan()

    assert [type(each) for each in free.actions] == [StopBackend]
    assert held.actions == ()
    assert held.held == free.actions
    assert held.next_at == CLOSED.changes_at


def test_the_stops_of_a_waiting_revision_are_told_as_held() -> None:
    world = serving(A, B, C, D)
    desired = world.desired()
    assert desired is not None
    waiting = WaitingRevision(revision="r2", stops=(B, C, D), running=4, limit=DEFAULT_STOP_LIMIT)
    made = plan(replace(desired, waiting=waiting), world.observed(), world.now)

    assert made.actions == ()
    assert [each.model for each in made.held] == [B, C, D]
    assert made.notes == (waiting.reason,)
    assert "revision r2, which waits for confirmation, would stop it" in reason(made, B)


def test_without_an_older_manifest_the_stops_of_a_waiting_one_are_held() -> None:
    """The last good one is lost, and the processes are there."""
    world = serving(A, B, C, D)
    world.manifest = {A: desired_model(A, strategy=Strategy.RECREATE)}
    desired = world.desired()
    assert desired is not None
    waiting = WaitingRevision(revision="r2", stops=(B, C, D), running=4, limit=DEFAULT_STOP_LIMIT)
    made = plan(replace(desired, waiting=waiting), world.observed(), world.now)

    assert made.actions == ()
    assert {each.model for each in made.held} == {B, C, D}
    assert all(each.state is State.LOADED for each in made.outlook)


@given(
    changes=st.fixed_dictionaries({name: CHANGES for name in (A, B, C)}),
    strategies=st.fixed_dictionaries({name: STRATEGIES for name in (A, B, C)}),
    suspended=st.sets(st.sampled_from([A, B, C])),
    window=st.sampled_from([None, OPEN, CLOSED]),
    node=st.booleans(),
)
def test_rails_only_ever_hold_back(
    changes: dict[ModelName, str],
    strategies: dict[ModelName, Strategy],
    suspended: set[ModelName],
    window: Maintenance | None,
    node: bool,
) -> None:
    world = serving(A, B, C)
    for name, how in changes.items():
        change(world, name, how, strategies[name])
    world.now += 3600  # what failed is due
    before = {name: list(each) for name, each in world.processes.items()}
    free = {
        case.name: next_step(case, world.now) for case in cases(_desired(world), world.observed())
    }
    without = world.plan()
    world.maintenance = window
    world.suspensions = tuple(Suspension(model=name, by="kim", since="t") for name in suspended)
    world.suspend = node
    desired = _desired(world)
    steps = {
        case.name: railed(case, free[case.name], desired, window)
        for case in cases(desired, world.observed())
    }
    for name, step in steps.items():
        assert step.action in (None, free[name].action)
        assert (step.held is not None) <= (step.action is None)
        if not desired.suspends(name) and window is not CLOSED:
            assert step == free[name]
    if not suspended and not node and window is not CLOSED:
        assert replace(world.plan(), next_at=None) == replace(without, next_at=None)

    for made in settle(world):
        assert not {each.model for each in made.held} & {each.model for each in made.actions}
        for action in made.actions:
            assert not desired.suspends(action.model)
    for name, processes in before.items():
        if desired.suspends(name):
            assert world.processes[name] == processes
        elif window is CLOSED and changes[name] not in ("hung", "crashed"):
            assert any(each.loaded_at is not None for each in world.processes[name])


def _desired(world: World) -> Desired:
    desired = world.desired()
    assert desired is not None
    return desired
