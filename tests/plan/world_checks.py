"""What holds of each plan that is made of a world, whatever happened in it before."""

import re
from dataclasses import replace

from reconciler.plan.actions import KeepBackend, Plan, StopBackend
from reconciler.plan.desired import Strategy
from reconciler.plan.ids import ModelName
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.planner import plan
from tests.plan.world import World

HOURS = {
    "no windows": None,
    "open": Maintenance(is_open=True),
    "closed": Maintenance(is_open=False),
}


def check_is_deterministic(world: World, made: Plan) -> None:
    """In whatever order it is told."""
    desired, seen = world.desired(), world.observed()
    turned = replace(
        seen,
        models={name: seen.models[name] for name in sorted(seen.models, reverse=True)},
        leftovers=seen.leftovers[::-1],
    )
    other = desired and replace(desired, models=desired.models[::-1])
    assert plan(other, turned, world.now) == made


def check_what_may_begin(world: World, made: Plan) -> None:
    """While all is suspended, only what ends a surge: a stop of what serves nobody any more, or to
    take it back."""
    if world.manifest is None or not world.processes_read:
        assert not made.actions
    for action in made.actions if world.suspend else ():
        if isinstance(action, KeepBackend):
            continue
        assert isinstance(action, StopBackend)
        wanted = world.wanted_instance(action.model)
        others = [each for each in world.processes[action.model] if each.nonce != action.nonce]
        assert [(each.instance, each.is_sound) for each in others] == [(wanted, True)]
        assert others[0].loaded_at is not None


def check_kept(world: World, made: Plan) -> None:
    """A process that still drains serves again exactly where nothing serves in its place."""
    kept = {action.nonce for action in made.actions if isinstance(action, KeepBackend)}
    if world.manifest is None or not world.processes_read:
        assert not kept
        return
    due = set()
    for name, (effect, _) in world.under_way.items():
        model = world.manifest.get(name)
        old = [each for each in world.processes.get(name, ()) if each.nonce == effect.nonce]
        if not effect.revocable or not old or model is None or not model.enabled:
            continue
        if any(each.is_sound for each in world.processes[name] if each not in old):
            continue
        if model.strategy is Strategy.RECREATE or old[0].reads_removed_files:
            due |= kept & {old[0].nonce}  # if it would not be stopped again at once
        elif old[0].is_sound:
            due.add(old[0].nonce)
    assert kept == due


def check_hung_ones_end(world: World, made: Plan) -> None:
    if world.manifest is None or world.suspend or not world.processes_read:
        return
    stopped = {action.nonce for action in made.actions if isinstance(action, StopBackend)}
    left = {leftover.model for leftover in world.leftovers}
    for name, processes in world.processes.items():
        failure = world.failures.get(name)
        waits = failure is not None and failure.during == "stop"
        if name in world.under_way or name in left or waits:
            continue
        if any(process.died for process in processes):
            continue
        if any(process.hung is not None for process in processes):
            nonces = {process.nonce for process in processes}
            assert nonces & stopped, "a hung backend goes on"


def check_keeps_the_gpu(world: World, reason: str) -> None:
    """Who keeps a GPU from another one runs, or could be started."""
    found = re.search(r"claimed by (\w+) too", reason)
    if found is None or found[1] in world.processes:
        return
    keeper = (world.manifest or {})[ModelName(found[1])]
    assert (keeper.name, keeper.spec_hash) not in world.refused
    failure = world.failures.get(keeper.name)
    if failure is not None and failure.spec_hash == keeper.spec_hash and failure.permanent:
        digest = world.cached.get((keeper.name, keeper.spec_hash))
        assert failure.files_digest not in (None, digest)


def check_stops_tell_why(world: World, made: Plan) -> None:
    """As long as they take, whatever happens meanwhile."""
    kept = {action.model for action in made.actions if isinstance(action, KeepBackend)}
    for outlook in made.outlook:
        effect, stop = world.under_way.get(outlook.model, (None, None))
        if effect is None or not isinstance(stop, StopBackend):
            continue
        if effect.aborting or outlook.model in kept:
            continue
        told = {each.nonce: each.reason for each in outlook.draining}
        if outlook.process is not None:
            told[outlook.process] = outlook.reason
        if stop.nonce in told:
            assert stop.cause in told[stop.nonce], "nobody can read why it is stopped"


def check_windows(world: World, made: Plan) -> None:
    """Outside of them nobody loses what serves, but for a fault of it."""
    if world.maintenance is None or world.maintenance.is_open:
        return
    for action in made.actions:
        if not isinstance(action, StopBackend) or action.failure is not None:
            continue
        serving = [
            each
            for each in world.processes[action.model]
            if each.loaded_at is not None and each.is_sound
        ]
        assert [each.nonce for each in serving] != [action.nonce], "a service lost out of hours"
