import asyncio
import contextlib
import json
import subprocess
from collections.abc import Iterator

import pytest

from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.errors import Transient
from tests.apply.conftest import mounted
from tests.apply.dead_agent import SESSION_NOTED, dead_agent
from tests.apply.world import KEY, World


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's server in a session of its own, with the stand-in's name."""
    with subprocess.Popen(
        ["sh", "-c", "exec sleep 3600", "stand_in_backend.py"], start_new_session=True
    ) as process:
        yield process
        process.kill()


async def test_what_an_older_release_left_is_found_and_stopped(world: World) -> None:
    """Scenarios 6 and 13: llama-swap#159, #138; nomad#5593, #6980."""
    dead = await dead_agent(world, "--child", "ignore-term")
    dead.of_an_older_release()

    await dead.next_agent()
    (leftover,) = world.backends.leftovers()
    assert (leftover.model, leftover.pid) == ("x", dead.pid)
    assert leftover.why == "the release that started it did not note how it is asked"
    assert world.backends.live() == ()
    await dead.stop()

    assert world.processes() == []
    assert world.records() == []
    assert world.backends.leftovers() == ()
    assert world.backends.problems == ()


@pytest.mark.parametrize("kind", ["plain", "setsid", "double-fork"])
async def test_children_are_found_though_the_leader_died_after_the_agent(
    world: World, kind: str
) -> None:
    """Scenarios 1 and 6: vllm#55510, llama-swap#159."""
    note = "" if kind == "plain" else SESSION_NOTED
    dead = await dead_agent(world, "--child", kind, note=note)
    await world.end(dead.pid)

    await dead.next_agent()
    (leftover,) = world.backends.leftovers()
    assert leftover.why == f"the first process of its backend, pid {dead.pid}, is gone"
    assert leftover.pid in [process.pid for process in world.processes()]
    await dead.stop()

    assert world.processes() == []
    assert world.records() == []


async def test_a_leftover_that_ends_by_itself_is_forgotten(world: World) -> None:
    dead = await dead_agent(world)
    dead.of_an_older_release()
    await dead.next_agent()

    await world.end(dead.pid)
    await world.until(lambda: world.backends.leftovers() == (), "it is forgotten")

    assert world.records() == []


async def test_a_leftover_keeps_its_port(world: World) -> None:
    """Scenario 13: nomad#6980: an orphan holds the port."""
    dead = await dead_agent(world)
    port = json.loads(dead.record.read_text())["port"]
    dead.of_an_older_release()
    await dead.next_agent()

    offered = set()
    with contextlib.suppress(Transient):
        while True:
            offered.add(world.backends.free_port())

    assert len(offered) > 1
    assert port not in offered
    await dead.stop()


async def test_a_record_of_a_spawn_that_never_came_is_removed(world: World) -> None:
    dead = await dead_agent(world)
    await world.end(dead.pid)
    dead.rewrite(pid=None, session=None, start_ticks=None)

    await dead.next_agent()

    assert world.records() == []
    assert world.backends.problems == ()


async def test_an_agent_starts_though_old_records_cannot_be_removed(world: World) -> None:
    dead = await dead_agent(world)
    await world.end(dead.pid)
    record = dead.record
    folder = str(record.parent)

    with mounted(["--bind", folder, folder], record.parent, then="remount,ro,bind"):
        await dead.next_agent()
        (problem,) = world.backends.problems

    assert problem.startswith(f"cannot remove spawn record {record}: read-only file system")


@pytest.mark.parametrize(
    "content",
    ['{"version": 1, "nonce": "a', "", '{"version": 99}', '{"version": 1}', "[]"],
    ids=["torn", "empty", "newer", "incomplete", "foreign"],
)
async def test_a_record_that_cannot_be_read_is_reported_and_blocks_nothing(
    world: World, content: str
) -> None:
    dead = await dead_agent(world)
    broken = dead.record.with_name("broken.json")
    broken.write_text(content)

    await dead.next_agent()

    assert f"cannot read spawn record {broken}" in " ".join(world.backends.problems)
    await dead.stop()
    assert world.records() == [broken]


async def test_who_carries_the_nonce_of_a_torn_record_is_named(world: World) -> None:
    dead = await dead_agent(world)
    record = dead.record
    whole = record.read_text()
    record.write_text("foo")
    await dead.next_agent()
    (problem,) = world.backends.problems
    no_json = f"cannot read spawn record {record}: it is no JSON record, or only a part of one; "
    assert problem.startswith(no_json)
    record.write_text(whole[:100])

    await dead.next_agent()

    (problem,) = world.backends.problems
    assert problem.startswith(no_json)
    assert f"; process {dead.pid} (" in problem
    assert problem.endswith(" carries its nonce; left alone; end it by hand and delete the record")
    await world.end(dead.pid)
    await dead.next_agent()
    (problem,) = world.backends.problems
    assert problem.endswith("; no process is seen that carries its nonce; delete it")
    record.write_text(whole)
    await dead.next_agent()
    assert world.records() == []


async def test_an_old_record_whose_pid_is_now_somebody_elses_kills_nobody(
    world: World, stranger: subprocess.Popen[bytes]
) -> None:
    dead = await dead_agent(world)
    await world.end(dead.pid)
    dead.rewrite(pid=stranger.pid, session=stranger.pid)

    await dead.next_agent()

    assert world.backends.live() == ()
    assert world.backends.leftovers() == ()
    assert world.records() == []
    assert stranger.poll() is None


async def test_a_record_of_another_boot_kills_nobody(world: World) -> None:
    dead = await dead_agent(world)
    dead.rewrite(boot_id="00000000-0000-0000-0000-000000000000")

    await dead.next_agent()

    assert world.backends.live() == ()
    assert world.backends.leftovers() == ()
    assert world.records() == []
    (ended,) = world.backends.take_ended_unseen()
    assert (ended.why, ended.unseen) == ("it was started before the last boot, on node-a", False)
    await world.end(dead.pid)


async def test_a_record_of_a_container_that_is_gone_is_removed(world: World) -> None:
    dead = await dead_agent(world)
    dead.rewrite(pid_namespace="pid:[1]")

    await dead.next_agent()

    assert world.backends.live() == ()
    assert world.backends.leftovers() == ()
    assert world.records() == []
    await world.end(dead.pid)


async def test_a_copied_nonce_in_another_session_is_reported_and_left_alone(world: World) -> None:
    dead = await dead_agent(world)
    nonce = json.loads(dead.record.read_text())["nonce"]
    decoy = await asyncio.create_subprocess_exec(
        "sleep", "3600", env={NONCE_VARIABLE: nonce}, start_new_session=True
    )

    await dead.next_agent()
    await dead.stop()

    assert f"process {decoy.pid} (sleep" in " ".join(world.backends.problems)
    assert decoy.returncode is None
    decoy.kill()
    await decoy.wait()
    await world.until(lambda: not world.backends.leftovers(), "the stop is over")
    woken = world.woken
    await world.until(lambda: world.backends.problems == (), "it is told no more")
    await world.until(lambda: world.woken > woken, "and at once, though nothing else has happened")
    assert world.records() == []


async def test_who_outlives_the_stop_of_a_spawn_under_its_nonce_is_told_of_till_he_is_gone(
    world: World,
) -> None:
    """An orphan of the time between an agent's last look and its death."""
    dead = await dead_agent(world)
    nonce = json.loads(dead.record.read_text())["nonce"]
    await dead.next_agent()
    orphan = await asyncio.create_subprocess_exec(
        "sleep", "3600", env={NONCE_VARIABLE: nonce}, start_new_session=True
    )

    await dead.stop()
    for _ in range(2):
        assert f"process {orphan.pid} (sleep" in " ".join(world.backends.problems)
        assert (world.backends.live(), world.backends.leftovers()) == ((), ())
        assert orphan.returncode is None
        await dead.next_agent()
    orphan.kill()
    await orphan.wait()
    await dead.next_agent()

    assert world.backends.problems == ()
    assert world.records() == []


async def test_a_process_without_the_nonce_is_reported_and_left_alone(world: World) -> None:
    """Its pid and start time are the recorded ones: doubtful, since the nonce is not there."""
    dead = await dead_agent(world)
    record = dead.record
    content = json.loads(record.read_text())
    record.unlink()
    other = record.with_name("other.json")
    other.write_text(json.dumps(content | {"nonce": "other"}))

    await dead.next_agent()

    assert world.backends.live() == ()
    assert world.backends.leftovers() == ()
    assert f"process {dead.pid} (python" in " ".join(world.backends.problems)
    assert world.records() == [other]
    await world.end(dead.pid)


async def test_strangers_of_the_same_name_survive_every_stop(
    world: World, stranger: subprocess.Popen[bytes]
) -> None:
    dead = await dead_agent(world)
    await dead.next_agent()
    await dead.stop()

    view = await world.spawn_loaded()
    await world.stop(view)
    world.backends.kill_now()

    assert stranger.poll() is None


async def test_a_record_that_was_half_written_is_dropped(world: World) -> None:
    dead = await dead_agent(world)
    partial = dead.record.with_suffix(".json.partial")
    partial.write_text("{")

    await dead.next_agent()
    await dead.stop()

    assert world.records() == []
    assert world.backends.problems == ()


async def test_records_are_for_their_owner_only(world: World) -> None:
    """They hold the backend's key."""
    dead = await dead_agent(world)

    assert dead.record.stat().st_mode & 0o777 == 0o600
    assert dead.record.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(dead.record.read_text())["api_key"] == KEY

    await dead.next_agent()
    await dead.stop()
