"""An agent goes on with the backends of one that was killed (R9)."""

import asyncio
import os
import signal
import time
from dataclasses import replace

import pytest

from reconciler.backend.engine_files import Stamp
from reconciler.backend.flags import Flag, Flags
from reconciler.backend.inventory import Build, Listed
from reconciler.backend.llama_options import COUNTERS
from reconciler.plan.ids import GpuUuid, ModelName
from reconciler.plan.spec_hash import spec_hash
from tests.apply.dead_agent import LOAD_NOTED, SESSION_NOTED, STOP_NOTED, DeadAgent, dead_agent
from tests.apply.world import KEY, SPEC, World, instance, launch

KINDS = ("plain", "ignore-term", "stopped", "setsid", "double-fork", "titled")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_killed_agent_left_serves_on_and_can_be_stopped(
    world: World, kind: str
) -> None:
    """Scenarios 6 and 13: llama-swap#159, #138; nomad#5593, #6980."""
    note = SESSION_NOTED if kind == "double-fork" else ""
    dead = await dead_agent(world, "--child", kind, note=note)
    assert len(world.processes()) == 2

    view = await dead.adopted()
    assert (view.model, view.pid, view.instance) == ("x", dead.pid, instance())
    assert world.backends.leftovers() == ()
    assert world.backends.api_keys() == (KEY,)
    assert len(world.processes()) == 2
    await dead.stop()

    assert world.processes() == []
    assert world.records() == []
    assert world.backends.live() == ()
    assert world.backends.problems == ()


async def test_it_is_known_as_it_was_started_but_for_its_variables(world: World) -> None:
    before = time.monotonic()
    dead = await dead_agent(world, note=LOAD_NOTED)
    after = time.monotonic()

    view = await dead.adopted()

    first = launch(mark=world.mark, port=view.launch.port)
    assert view.launch == replace(first, env={})
    assert before - 0.1 < view.started_at < after  # /proc counts in hundredths
    assert view.loaded_at is not None
    assert view.loaded_at >= view.started_at
    assert view.adopted is not None
    assert view.adopted.was_loaded
    await dead.stop()


async def test_all_that_is_told_of_an_engine_is_told_of_it_still(world: World) -> None:
    made = world.launch()
    build = Build(
        id="llama-server-cuda",
        name="b1",
        command=("/opt/llama-server",),
        version="9999",
        detail="llama-server 9999",
        flags=Flags((Flag(names=("--threads",)),), True),
        listed=(Listed("CUDA0", "NVIDIA H200"),),
        files=(Stamp("/opt/llama-server", (1, 2, 3, 1796077884000000001)), Stamp("/gone", None)),
    )
    first = replace(
        made,
        probe=replace(made.probe, answer_file=b"RIFF\0\xff"),
        counters=COUNTERS,
        warnings=("a warning",),
        gpu_share=0.5,
        build=build,
    )
    gpus = (GpuUuid("GPU-1"),)
    view = await world.backends.spawn(
        model=ModelName("x"), spec=SPEC, instance=instance(), gpus=gpus, launch=first
    )
    world.sessions.add(view.pid)
    world.plays_init = True
    dead = DeadAgent(world=world, pid=view.pid)

    adopted = await dead.adopted()

    assert adopted.gpus == gpus
    assert adopted.launch == replace(first, env={}, build=replace(build, flags=Flags()))
    await dead.stop()


async def test_a_spawn_that_was_never_completed_on_record_is_found_by_its_nonce(
    world: World,
) -> None:
    dead = await dead_agent(world, "--child", "ignore-term")
    dead.rewrite(pid=None, session=None, start_ticks=None)

    assert (await dead.adopted()).pid == dead.pid
    await dead.stop()

    assert world.processes() == []


async def test_how_an_adopted_backend_ended_nobody_can_say(world: World) -> None:
    dead = await dead_agent(world)
    view = await dead.adopted()

    await world.end(dead.pid)
    exited = await world.exit_of(view)

    assert (exited.during, exited.code, exited.signal) == ("run", None, None)
    assert "how, nobody can say: an agent before this one had started it" in exited.reason
    assert world.processes() == []
    assert world.records() == []


async def test_who_outlives_an_adopted_backend_is_ended_by_the_plan_alone(world: World) -> None:
    """R3: this agent may not have read its manifest yet."""
    dead = await dead_agent(world, "--child", "plain")
    view = await dead.adopted()

    await world.end(dead.pid)
    exited = await world.exit_of(view)

    (child,) = world.processes()
    (leftover,) = world.backends.leftovers()
    assert world.backends.live() == ()
    assert (leftover.pid, leftover.stopping) == (child.pid, False)
    assert leftover.why == f"the first process of its backend, pid {dead.pid}, is gone"
    assert exited.during == "run"
    await dead.stop()
    assert world.processes() == []
    assert world.records() == []
    assert world.backends.take_exits() == ()


async def test_a_stop_that_had_begun_is_for_the_next_agent_to_end(world: World) -> None:
    view = await world.spawn_loaded("--ignore-sigterm")
    world.plays_init = True
    dead = DeadAgent(world=world, pid=view.pid)
    record = dead.record
    stop = asyncio.create_task(world.stop(view))
    await world.until(lambda: STOP_NOTED in record.read_text(), "it is noted")
    stop.cancel()
    await asyncio.gather(stop, return_exceptions=True)

    await dead.next_agent()

    assert world.backends.live() == ()
    (leftover,) = world.backends.leftovers()
    assert (leftover.pid, leftover.stopping) == (view.pid, False)
    assert leftover.why == "an agent before this one had begun to stop it"
    await world.end(view.pid)
    await dead.next_agent()
    (ended,) = world.backends.take_ended_unseen()
    assert (ended.why, ended.unseen) == ("its agent had begun to stop it", False)
    assert world.records() == []


async def test_what_served_and_died_before_it_was_asked_has_not_failed_to_load(
    world: World,
) -> None:
    dead = await dead_agent(world, note=LOAD_NOTED)
    os.kill(dead.pid, signal.SIGSTOP)
    await dead.next_agent()
    (view,) = world.backends.live()

    await world.end(dead.pid)

    assert (await world.exit_of(view)).during == "run"


async def test_a_stopped_process_does_not_serve_until_it_answers(world: World) -> None:
    """Scenario 4: it is there, and its port is open."""
    dead = await dead_agent(world)
    os.kill(dead.pid, signal.SIGSTOP)
    await dead.next_agent()
    (view,) = world.backends.live()
    assert view.loaded_at is None

    os.kill(dead.pid, signal.SIGCONT)
    await world.until(lambda: world.view(view).loaded_at is not None, "it answers")

    await dead.stop()


async def test_a_spec_of_another_hash_version_is_hashed_anew(world: World) -> None:
    """R4: an upgrade restarts nothing."""
    dead = await dead_agent(world)
    dead.rewrite(spec_hash="0:of-old")

    view = await dead.adopted()

    assert view.instance == replace(instance(), spec_hash=spec_hash(SPEC))
    await dead.stop()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"spec_hash": "0:of-old", "spec": None}, "its spec was hashed by another release"),
        ({"launch": {"probe": 1}}, "its record does not say how it is asked"),
    ],
    ids=["spec", "launch"],
)
async def test_what_cannot_be_gone_on_with_is_a_leftover_that_says_why(
    world: World, fields: dict[str, object], why: str
) -> None:
    dead = await dead_agent(world)
    dead.rewrite(**fields)

    await dead.next_agent()

    assert world.backends.live() == ()
    (leftover,) = world.backends.leftovers()
    assert leftover.why.startswith(why)
    await dead.stop()


async def test_what_ended_while_no_agent_was_there_is_told_once(world: World) -> None:
    dead = await dead_agent(world)
    await world.end(dead.pid)

    await dead.next_agent()

    (ended,) = world.backends.take_ended_unseen()
    assert (ended.record.pid, ended.unseen) == (dead.pid, True)
    assert world.backends.take_ended_unseen() == ()
    assert world.records() == []


async def test_a_node_that_was_renamed_keeps_its_backends(world: World) -> None:
    dead = await dead_agent(world)
    dead.rewrite(node="as-it-was-called")

    assert (await dead.adopted()).pid == dead.pid
    await dead.stop()


async def test_three_agents_one_after_the_other_have_the_same_backend(world: World) -> None:
    dead = await dead_agent(world, note=LOAD_NOTED)

    pids = [(await dead.adopted()).pid for _ in range(3)]

    assert set(pids) == {dead.pid}
    await dead.stop()
