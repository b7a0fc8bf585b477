"""Steps that kill, stop and starve. Each says what it did; None: there was nothing to do it to.

What lasts is mended by `mend` some steps later, in the order in which it began.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from random import Random

from reconciler.observe.processes import read_processes
from tests.chaos import ends
from tests.chaos.census import Backend
from tests.chaos.hub import FAULTS
from tests.chaos.world import World

_JUMPS_SECONDS = (5.0, 60.0, 900.0, 4000.0)
_MOST_CRASHES = 4
_WALL_SECONDS = (-86_400.0, -30.0, 30.0, 86_400.0, 0.0)


def kill_agent(world: World, _rng: Random) -> str | None:
    """Below a supervisor not so often that this pauses for long."""
    if world.agent_pid is None or world.crashes == _MOST_CRASHES:
        return None
    if world.supervised and world.disk.was_full:
        return None
    if world.supervised:
        if not world.crashes:  # a first one that never was up ends its supervisor
            world.thaw(world.agent_pid)
            world.wait_up()
        return f"kill -9 of the agent below its supervisor, pid {ends.crash(world)}"
    pid = world.agent_pid
    ends.end(world, signal.SIGKILL)
    return f"kill -9 of the agent, pid {pid}"


def end_agent(world: World, _rng: Random) -> str | None:
    """As its service manager does, on a full disk too, if it is up by then; its backends end with
    it, unless it is to leave them. Its supervisor may just be about to start it anew."""
    between_two = world.crashes and world.started_pid is not None and world.agent_pid is None
    if world.disk.was_full and (between_two or not world.is_up):
        return None
    if not (world.answers or between_two):
        return None
    if not world.leaves:
        world.touch_all()
    if world.answers:
        world.wait_up()
    ends.end(world, signal.SIGTERM)
    return _ended(world, f"{_name(world)} is ended by TERM")


def kill_supervisor(world: World, rng: Random) -> str | None:
    """Alone, which the agent sees, or with its agent."""
    if not world.supervised or not world.answers or (world.disk.was_full and not world.is_up):
        return None
    if rng.random() < 0.5:
        ends.kill_both(world)
        return "kill -9 of the supervisor and its agent"
    if not world.leaves:
        world.touch_all()
    world.wait_up()
    ends.end(world, signal.SIGKILL)
    return _ended(world, "kill -9 of the supervisor")


def kill_ending_agent(world: World, rng: Random) -> str | None:
    """One more comes after it, which ends its backends, unless they are to be left."""
    if not world.supervised or not world.answers or world.disk.was_full:
        return None
    if not world.leaves:
        world.touch_all()
    world.wait_up()
    ends.end_and_crash(world, rng.random())
    return _ended(world, "the supervisor is ended by TERM, and its agent killed meanwhile")


def _name(world: World) -> str:
    return "the supervisor" if world.supervised else "the agent"


def _ended(world: World, how: str) -> str:
    if world.leaves:
        return f"{how}; backends are left"
    left = [each for each in world.census().everyone if not world.doubtful(each)]
    assert not left, f"left, though {how}: {[*map(str, left)]}"
    return how


def freeze_agent(world: World, _rng: Random) -> str | None:
    if world.agent_pid is None or world.agent_pid in world.frozen:
        return None
    world.freeze(world.agent_pid)
    return f"the agent, pid {world.agent_pid}, is stopped"


def kill_leader(world: World, rng: Random) -> str | None:
    backend = _pick(world, rng)
    if backend is None:
        return None
    world.kill(backend, backend.pid)
    return f"kill -9 of {backend.model}, pid {backend.pid}"


def kill_member(world: World, rng: Random) -> str | None:
    """One of a backend's children or orphans: the backend itself goes on."""
    backend = _pick(world, rng, with_members=True)
    if backend is None:
        return None
    member = rng.choice(backend.members)
    world.kill(backend, member.pid)
    return f"kill -9 of {member.pid} ({member.name}), of {backend.model}"


def kill_tree(world: World, rng: Random) -> str | None:
    """All of one backend at once, its orphans first."""
    backend = _pick(world, rng)
    if backend is None:
        return None
    _kill_all(world, backend)
    return f"kill -9 of all {len(backend.members) + 1} processes of {backend.model}"


def freeze_leader(world: World, rng: Random) -> str | None:
    backend = _pick(world, rng)
    if backend is None:
        return None
    if backend.model in _unloaded(world):  # what loads may now take too long
        world.harm(backend.model)
    world.freeze(backend.pid)
    return f"{backend.model}, pid {backend.pid}, is stopped"


def freeze_member(world: World, rng: Random) -> str | None:
    backend = _pick(world, rng, with_members=True)
    if backend is None:
        return None
    member = rng.choice(backend.members)
    world.freeze(member.pid)
    return f"{member.pid} ({member.name}) of {backend.model} is stopped"


def kill_helper(world: World, _rng: Random) -> str | None:
    """What fetches for the agent."""
    helpers = [
        process
        for process in read_processes().values()
        if process.parent == world.agent_pid and process in world.census().others
    ]
    for each in helpers:
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)
    return f"kill -9 of {[str(each) for each in helpers]}" if helpers else None


def harm_hub(world: World, rng: Random) -> str | None:
    if world.hub.fault is not None:
        return None
    world.hub.begin(rng.choice(FAULTS))
    return f"the hub {world.hub.fault}"


def fill_disk(world: World, _rng: Random) -> str | None:
    if not world.disk.small or world.disk.full:
        return None
    world.disk.fill()
    return "the disk is full"


def take_manifests_away(world: World, _rng: Random) -> str | None:
    if world.desired.away:
        return None
    world.desired.take_away()
    return "the folder of the manifests is gone"


def jump_ahead(world: World, rng: Random) -> str | None:
    seconds = rng.choice(_JUMPS_SECONDS)
    world.clock.jump_ahead(seconds)
    if seconds > 60:  # longer than any load may take
        world.harm(*_unloaded(world))
    return f"the agent's clock jumps {seconds:.0f} s ahead"


def set_wall(world: World, rng: Random) -> str | None:
    seconds = rng.choice(_WALL_SECONDS)
    world.clock.set_wall(seconds)
    return f"the wall clock is set {seconds:+.0f} s from the true time"


def copy_nonce(world: World, rng: Random) -> str | None:
    backend = _pick(world, rng)
    if backend is None or len(world.decoys.nonces) >= 3:
        return None
    world.decoys.copy_nonce(backend.nonce, backend.model)
    return f"a stranger has the nonce of {backend.model}"


def doctor_record(world: World, rng: Random) -> str | None:
    """While no agent runs, which would have read them."""
    records = sorted((world.agent.data / "spawns").glob("*.json"))
    records = [each for each in records if each.name not in world.decoys.doctored]
    if world.started_pid is not None or world.disk.full or not records:
        return None
    return f"a record tells of {world.decoys.doctor(rng.choice(records), rng)}"


def reuse_pid(world: World, rng: Random) -> str | None:
    """A backend dies while no agent runs, and a stranger gets its number."""
    backend = _pick(world, rng)
    if world.started_pid is not None or backend is None:
        return None
    _kill_all(world, backend)
    given = world.decoys.take_pid(backend.pid)
    return f"pid {backend.pid} of {backend.model} is {'given to a stranger' if given else 'free'}"


def mend(world: World, harm: Callable[..., object]) -> str | None:
    """End what that step began; None: it does not last, or is over."""
    if harm is harm_hub and world.hub.fault is not None:
        world.hub.mend()
        return "the hub is well again"
    if harm is fill_disk and world.disk.full:
        world.disk.free()
        return "the disk has room again"
    if harm is take_manifests_away and world.desired.away:
        world.desired.bring_back()
        return "the folder of the manifests is back"
    if harm in (freeze_agent, freeze_leader, freeze_member) and world.frozen:
        world.thaw()
        return "what was stopped goes on"
    return None


def _kill_all(world: World, backend: Backend) -> None:
    world.harm(backend.model)
    for each in (*backend.members, backend.process):
        world.kill(backend, each.pid)


def _unloaded(world: World) -> list[str]:
    view = world.view()
    models = view["models"] if view is not None else []
    return [entry["name"] for entry in models if entry["state"] != "loaded"]


def _pick(world: World, rng: Random, *, with_members: bool = False) -> Backend | None:
    """By name, so that a seed picks the same one as long as the same ones are there."""
    backends = [each for each in world.census().backends if each.members or not with_members]
    backends.sort(key=lambda each: (each.model, each.pid))
    return rng.choice(backends) if backends else None
