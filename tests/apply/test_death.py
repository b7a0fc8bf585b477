import asyncio
import os
import signal
import sys

import pytest

from reconciler.apply.ladder import REST_SECONDS
from reconciler.errors import Transient
from reconciler.observe.processes import read_process
from reconciler.plan.ids import Nonce
from tests.apply.world import World

KINDS = (
    "plain",
    "ignore-term",
    "stopped",
    "setsid",
    "setsid-ignore-term",
    "double-fork",
    "titled",
)


async def test_stops_a_backend_that_heeds_term(world: World) -> None:
    view = await world.spawn_loaded()

    await world.stop(view)

    assert world.processes() == []
    exited = await world.exit_of(view)
    assert (exited.during, exited.code, exited.signal) == ("stop", 0, None)
    assert world.records() == []
    assert world.backends.live() == ()


async def test_kills_a_leader_that_ignores_term(world: World) -> None:
    """Scenario 7: llama-swap#38, #125."""
    view = await world.spawn_loaded("--ignore-sigterm")

    await world.stop(view, stop_seconds=0.05)

    assert world.processes() == []
    exited = await world.exit_of(view)
    assert (exited.during, exited.code, exited.signal) == ("stop", None, "SIGKILL")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stop_ends_children_that_the_leader_leaves(world: World, kind: str) -> None:
    """Scenarios 1 and 2: vllm#55510, vllm PR#34816 (names and titles tell nothing)."""
    view = await world.spawn_loaded("--child", kind, "--child", kind, children=2)

    await world.stop(view)

    assert world.processes() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_children_that_outlive_a_killed_leader_are_ended_before_the_exit_is_told(
    world: World, kind: str
) -> None:
    """Scenario 1: vllm#55510: the port is free at once, the workers hold the memory."""
    view = await world.spawn_loaded("--child", kind, children=1)

    await world.end(view.pid)
    exited = await world.exit_of(view)

    assert world.processes() == []
    assert (exited.during, exited.signal) == ("run", "SIGKILL")


async def test_a_child_that_the_leader_never_reaped_is_reaped_after_it(world: World) -> None:
    """It has come to us by then, and its environment, by which it was known, has gone."""
    view = await world.spawn_loaded("--child", "setsid", children=1)
    (child,) = world.sleepers()
    in_record = f'"sessions": [\n  {child.pid}\n'
    await world.until(lambda: in_record in world.records()[0].read_text(), "it is noted")
    await world.end(child.pid)
    await world.until(lambda: in_record not in world.records()[0].read_text(), "its end is noted")

    await world.stop(view)

    assert read_process(child.pid) is None


async def test_a_backend_whose_leader_is_gone_counts_as_stopping_at_once(world: World) -> None:
    """Scenario 1: vllm#55510: nothing is routed to it while its workers are ended."""
    view = await world.spawn_loaded("--child", "ignore-term", children=1)
    assert REST_SECONDS > 1

    await world.end(view.pid)
    await world.until(lambda: world.view(view).stopping, "it is stopping")

    assert world.sleepers() != []
    assert world.backends.take_exits() == ()
    await world.exit_of(view)


@pytest.mark.parametrize("flags", [("--ready-after", "3600"), ("--refuse-until-ready",)])
async def test_a_stop_during_the_load_works_at_once(world: World, flags: tuple[str, ...]) -> None:
    """Scenario 3: vllm PR#44751."""
    view = await world.spawn(*flags, "--child", "ignore-term")
    await world.until(lambda: len(world.sleepers()) == 1, "its child is there")

    await world.stop(view)

    assert world.processes() == []
    assert (await world.exit_of(view)).during == "stop"


async def test_a_load_that_hangs_and_ignores_term_is_killed(world: World) -> None:
    """Scenario 3: vllm PR#44751."""
    view = await world.spawn("--hang-on-load", "--child", "plain")
    await world.until(lambda: len(world.sleepers()) == 1, "its child is there")

    await world.stop(view, stop_seconds=0.05)

    assert world.processes() == []


async def test_a_leader_whose_first_thread_has_ended_is_not_taken_for_dead(world: World) -> None:
    """/proc shows it as a zombie while its other threads live."""
    program = (
        "import ctypes, threading, time;"
        "threading.Thread(target=time.sleep, args=(3600,)).start();"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    view = await world.spawn(argv=(sys.executable, "-c", program))
    await world.until(lambda: [each.state for each in world.processes()] == ["Z"], "half dead")

    await world.stop(view)

    assert world.processes() == []
    assert (await world.exit_of(view)).signal == "SIGTERM"


async def test_a_stopped_leader_hears_term(world: World) -> None:
    view = await world.spawn_loaded()
    os.kill(view.pid, signal.SIGSTOP)

    await world.stop(view)

    assert (await world.exit_of(view)).code == 0


async def test_hurry_kills_without_waiting(world: World) -> None:
    view = await world.spawn_loaded("--ignore-sigterm", "--child", "ignore-term", children=1)
    hurry = asyncio.Event()
    stopping = asyncio.create_task(world.stop(view, stop_seconds=3600, hurry=hurry))
    await world.until(lambda: world.view(view).stopping, "the stop has begun")

    hurry.set()
    await stopping

    assert world.processes() == []


async def test_a_second_stop_joins_the_first_and_may_hurry_it(world: World) -> None:
    view = await world.spawn_loaded("--ignore-sigterm")
    first = asyncio.create_task(world.stop(view, stop_seconds=3600))
    await world.until(lambda: world.view(view).stopping, "the stop has begun")
    hurry = asyncio.Event()
    hurry.set()

    await world.stop(view, hurry=hurry)
    await first

    assert world.processes() == []
    await world.exit_of(view)


async def test_a_stop_that_is_cancelled_goes_on(world: World) -> None:
    view = await world.spawn_loaded("--child", "ignore-term", children=1)
    stopping = asyncio.create_task(world.stop(view))
    await world.until(lambda: world.view(view).stopping, "the stop has begun")

    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)

    assert (await world.exit_of(view)).during == "stop"
    assert world.processes() == []


async def test_a_death_is_told_though_its_record_cannot_be_removed(world: World) -> None:
    """Else a dead backend would count as serving for as long as a disk is read-only."""
    view = await world.spawn(argv=("sleep", "3600"))
    (record,) = world.records()
    record.unlink()
    (record / "in-the-way").mkdir(parents=True)

    await world.end(view.pid)

    exited = await world.exit_of(view)
    assert exited.during == "load"
    assert world.backends.live() == ()
    (problem,) = world.backends.problems
    assert problem.startswith(f"cannot remove spawn record {record}: ")
    assert problem.endswith(f"; take away what stands in the way at {record.parent}")


async def test_a_record_that_could_not_be_removed_is_removed_later(world: World) -> None:
    view = await world.spawn(argv=("sleep", "3600"))
    (record,) = world.records()
    record.rename(record.with_suffix(".kept"))
    (record / "in-the-way").mkdir(parents=True)
    await world.stop(view)
    assert world.backends.problems != ()

    (record / "in-the-way").rmdir()
    record.rmdir()
    record.with_suffix(".kept").rename(record)

    await world.until(lambda: world.records() == [], "it is removed")
    await world.until(lambda: world.backends.problems == (), "nothing is doubtful")


async def test_stopping_what_is_not_there_is_done_already(world: World) -> None:
    await world.backends.stop(Nonce("unknown"), stop_seconds=1, kill_seconds=1)


async def test_survivors_are_named_and_a_later_stop_takes_them(world: World) -> None:
    """A look right after KILL, as if the kernel held the process (state D)."""
    view = await world.spawn_loaded("--ignore-sigterm")
    hurry = asyncio.Event()
    hurry.set()

    with pytest.raises(Transient, match=rf"cannot stop x: .*SIGKILL: {view.pid} \(python"):
        await world.backends.stop(view.nonce, stop_seconds=0, kill_seconds=0, hurry=hurry)

    await world.stop(view)
    assert world.processes() == []


async def test_kill_now_ends_every_backend_with_all_its_children(world: World) -> None:
    first = await world.spawn_loaded("--ignore-sigterm", "--child", "setsid", children=1)
    second = await world.spawn("--ready-after", "3600", "--child", "double-fork")
    await world.until(lambda: len(world.sleepers()) == 2, "children are there")

    world.backends.kill_now()

    assert [(await world.exit_of(view)).signal for view in (first, second)] == ["SIGKILL"] * 2
    assert world.processes() == []


async def test_close_leaves_backends_as_they_are(world: World) -> None:
    view = await world.spawn_loaded("--child", "plain", children=1)

    await world.backends.close()

    assert len(world.processes()) == 2
    assert len(world.records()) == 1
    world.backends = world.make_backends()
    await world.backends.open()
    await world.stop(view)
