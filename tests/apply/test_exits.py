import asyncio
import subprocess

import pytest

from tests.apply.world import World


async def test_an_exit_during_the_load_is_told_at_once_with_its_last_lines(world: World) -> None:
    """Scenario 5: llama-swap#100: a bad flag, and the supervisor waits out its 15 minutes."""
    view = await world.spawn("--no-such-flag")

    exited = await world.exit_of(view)

    assert (exited.during, exited.code, exited.signal) == ("load", 2, None)
    assert "unrecognized arguments: --no-such-flag" in exited.last_lines[-1]
    assert "exited with code 2 during the load" in exited.reason
    assert world.woken > 0


async def test_a_clean_exit_that_nobody_asked_for_is_told_as_well(world: World) -> None:
    view = await world.spawn("--exit-after", "0", "--exit-code", "0")

    exited = await world.exit_of(view)

    assert (exited.during, exited.code) == ("load", 0)
    assert "exited with code 0" in exited.reason


async def test_a_trap_is_named_by_its_signal(world: World) -> None:
    view = await world.spawn("--trap")

    exited = await world.exit_of(view)

    assert (exited.code, exited.signal) == (None, "SIGILL")
    assert "killed by SIGILL" in exited.reason


async def test_a_crash_after_the_load_is_told_with_how_long_it_served(world: World) -> None:
    view = await world.spawn_loaded()

    await world.end(view.pid)
    exited = await world.exit_of(view)

    assert (exited.during, exited.signal) == ("run", "SIGKILL")
    assert 0 < exited.loaded_seconds < exited.uptime_seconds
    assert world.records() == []


async def test_last_lines_are_of_this_start_only(world: World) -> None:
    first = await world.spawn("--exit-after", "0", "--exit-code", "3")
    await world.exit_of(first)

    second = await world.spawn("--trap")
    exited = await world.exit_of(second)

    assert exited.last_lines == ("loading x",)


async def test_of_two_at_a_time_each_has_its_own_last_lines(world: World) -> None:
    """As in a surge that fails."""
    old = await world.spawn(argv=("sh", "-c", "while echo old; do sleep 0.02; done"))
    new = await world.spawn(argv=("sh", "-c", "echo new; sleep 0.2; printf torn; exit 3"))
    exited = await world.exit_of(new)

    assert exited.last_lines == ("new", "torn")
    assert new.log_path.read_text().endswith(
        f"during the load, {exited.uptime_seconds:.1f} s after its start\n"
    )
    await world.stop(old)
    assert "new" not in old.log_path.read_text()


async def test_a_flood_of_output_blocks_nobody(world: World) -> None:
    view = await world.spawn_loaded("--log-megabytes", "10")

    assert view.log_path.stat().st_size > 10 * 1024 * 1024
    await world.stop(view)


async def test_a_log_that_grows_too_long_is_rotated_while_its_backend_runs(world: World) -> None:
    world.log_max_bytes = 1024 * 1024
    await world.backends.close()
    world.backends = world.make_backends()
    await world.backends.open()

    view = await world.spawn_loaded("--log-megabytes", "2")
    older = view.log_path.with_name("x@1.log.1")
    await world.until(older.exists, "the log is rotated")

    assert older.stat().st_size > 2 * 1024 * 1024
    await world.until(lambda: view.log_path.stat().st_size < 4096, "the log is short again")
    await world.stop(view)


async def test_orphans_are_reaped_and_nobody_elses_children_are(world: World) -> None:
    def somebody_else() -> list[int]:
        command = ["sh", "-c", "exit 3"]
        return [subprocess.run(command, check=False).returncode for _ in range(100)]

    others = asyncio.create_task(asyncio.to_thread(somebody_else))
    for _ in range(3):
        view = await world.spawn_loaded("--child", "double-fork", "--child", "brief", children=1)
        await world.end(view.pid)
        await world.exit_of(view)

    assert await others == [3] * 100
    assert world.zombies() == []


@pytest.mark.parametrize("kind", ["double-fork", "setsid"])
async def test_a_child_that_left_the_session_is_known_from_the_record_later(
    world: World, kind: str
) -> None:
    view = await world.spawn_loaded("--child", kind, children=1)
    (child,) = world.sleepers()
    (record,) = (path for path in world.records() if path.suffix == ".json")

    await world.until(lambda: f"{child.session}\n" in record.read_text(), "the sweep notes it")

    assert child.session != view.pid
    await world.stop(view)
