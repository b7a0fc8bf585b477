"""Whatever state a record is in at a start: it holds up nothing, its process is left alone, and an
operator is told where it is, whose it is, and what to do (R9)."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from reconciler.observe.processes import HOST_PID_NAMESPACE, pid_namespace
from reconciler.own_files import MAX_BYTES
from tests.apply.dead_agent import dead_agent
from tests.apply.world import SLEEP, World
from tests.waiting import wait_until

BY_HAND = "end it by hand and delete the record"


def become_a_link(record: Path) -> None:
    kept(record).rename(record.with_name("elsewhere"))
    record.symlink_to("elsewhere")


def become_a_loop(record: Path) -> None:
    kept(record).unlink()
    record.symlink_to(record.name)


def become_a_folder(record: Path) -> None:
    kept(record).unlink()
    record.mkdir()


def become_a_pipe(record: Path) -> None:
    """To open it may wait for ever."""
    kept(record).unlink()
    os.mkfifo(record)


def become_a_socket(record: Path) -> None:
    kept(record).unlink()
    folder = os.open(record.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{record.name}")  # a path of a socket is short
    os.close(folder)


def become_huge(record: Path) -> None:
    """More than any machine could read into its memory."""
    kept(record)
    os.truncate(record, 1 << 42)


def become_deep(record: Path) -> None:
    kept(record)
    record.write_text('{"version": 1, "nonce": ' + "[" * 100_000)


def be_of_a_newer_release(record: Path) -> None:
    text = kept(record).read_text()
    record.write_text(text.replace('"version": 1,', '"version": 2, "more": {},'))


def kept(record: Path) -> Path:
    record.with_suffix(".whole").write_bytes(record.read_bytes())
    return record


def restore(record: Path) -> None:
    """As it was; how it was harmed does not matter."""
    with contextlib.suppress(IsADirectoryError):
        record.unlink()
    if record.is_dir():
        record.rmdir()
    record.with_suffix(".whole").rename(record)


HARMS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "link": (become_a_link, "it is no regular file but a symbolic link", BY_HAND),
    "loop": (become_a_loop, "it is no regular file but a symbolic link", BY_HAND),
    "folder": (become_a_folder, "it is no regular file but a folder", BY_HAND),
    "pipe": (become_a_pipe, "it is no regular file but a named pipe", BY_HAND),
    "socket": (become_a_socket, "it is no regular file but a socket", BY_HAND),
    "huge": (become_huge, f"it is larger than {MAX_BYTES >> 20} MiB", BY_HAND),
    "deep": (become_deep, "maximum recursion depth exceeded[^;]*", BY_HAND),
    "newer": (
        be_of_a_newer_release,
        "it has version 2, this agent knows 1",
        f"start the release again that wrote it, or {BY_HAND}",
    ),
}


@pytest.mark.parametrize(("harm", "cause", "cure"), HARMS.values(), ids=HARMS)
async def test_a_record_that_cannot_be_read_is_told_with_its_process_and_what_to_do(
    world: World, harm: Callable[[Path], None], cause: str, cure: str
) -> None:
    dead = await dead_agent(world)
    record = dead.record
    harm(record)

    await asyncio.wait_for(dead.next_agent(), timeout=60)

    (problem,) = world.backends.problems
    assert re.fullmatch(
        f"cannot read spawn record {record}: {cause}; process {dead.pid} "
        rf"\(python\w*, state \w\) carries its nonce; left alone; {cure}",
        problem,
    )
    assert (world.backends.live(), world.backends.leftovers()) == ((), ())
    assert [process.pid for process in world.processes()] == [dead.pid]
    assert record in world.records()
    restore(record)
    assert (await dead.adopted()).pid == dead.pid
    assert world.backends.problems == ()
    await dead.stop()


def test_a_name_that_is_no_text_can_be_told(tmp_path: Path) -> None:
    spawns = tmp_path / "spawns"
    spawns.mkdir()
    Path(os.fsdecode(os.fsencode(spawns) + b"/\xff.json")).write_text("{")

    (problem,) = told_by_an_agent_without_privileges(tmp_path)

    assert problem.startswith(rf"cannot read spawn record {spawns}/\xff.json: ")
    assert problem.endswith("; no process is seen that carries its nonce; delete it")
    assert msgspec.json.encode(problem)


async def test_a_record_that_the_agent_may_not_read_is_told(world: World) -> None:
    dead = await dead_agent(world, wrapper=without_privileges())
    record = dead.record
    record.chmod(0)

    (problem,) = told_by_an_agent_without_privileges(world.data_dir)

    assert problem.startswith(
        f"cannot read spawn record {record}: permission denied; process {dead.pid} ("
    )
    assert problem.endswith(
        f" carries its nonce; left alone; make it readable for this agent (uid {os.geteuid()}), "
        f"or {BY_HAND}"
    )
    record.chmod(0o600)
    assert told_by_an_agent_without_privileges(world.data_dir) == []
    await dead.adopted()
    await dead.stop()


def test_a_folder_of_records_that_cannot_be_listed_does_not_seem_empty(tmp_path: Path) -> None:
    spawns = tmp_path / "spawns"
    spawns.mkdir(mode=0o300)

    (why,) = told_by_an_agent_without_privileges(tmp_path)

    assert why == (
        f"cannot read the records in {spawns}: permission denied; make the folder readable for "
        f"this agent (uid {os.geteuid()})"
    )


async def test_what_can_be_read_later_is_for_the_plan_to_end(world: World) -> None:
    """Its model may have been started anew meanwhile. Nothing of it is started at that time."""
    dead = await dead_agent(world, "--child", "ignore-term")
    record = dead.record
    whole = record.read_text()
    record.write_text(whole[:100])
    await dead.next_agent()
    assert world.backends.leftovers() == ()

    record.write_text(whole)
    for _ in range(20):  # each has the backends looked at
        await world.stop(await world.spawn(argv=SLEEP), stop_seconds=5)
    await world.until(lambda: world.backends.leftovers() != (), "it is known")

    (leftover,) = world.backends.leftovers()
    assert (leftover.model, leftover.pid) == ("x", dead.pid)
    assert leftover.why == "whose it is could not be told when this agent started"
    assert world.backends.live() == ()
    assert world.backends.problems == ()
    await dead.stop()
    assert world.processes() == []
    assert world.records() == []


async def test_what_may_run_in_another_pid_namespace_is_told_till_that_is_gone(
    world: World,
) -> None:
    dead = await dead_agent(world)
    record = dead.record
    with container() as namespace:
        dead.rewrite(pid_namespace=namespace, pid=7, session=7)
        await dead.next_agent()
        (problem,) = world.backends.problems
        assert problem == (
            f"cannot tell whether x ({record}) still runs: it was started in another pid "
            f"namespace, {namespace}, as pid 7 there; left alone; look there, and delete its "
            "record once it is gone"
        )
        assert record.exists()

    await dead.next_agent()

    assert world.backends.problems == ()
    assert world.records() == []
    await world.end(dead.pid)


async def test_what_may_run_on_the_host_is_told_by_an_agent_in_a_container(world: World) -> None:
    """Whose processes are not to be seen from there, and do not end with any container."""
    dead = await dead_agent(world)
    dead.rewrite(pid_namespace=HOST_PID_NAMESPACE)

    (problem,) = told_by_an_agent(container_command("--mount-proc"), world.data_dir)

    assert f"namespace, {HOST_PID_NAMESPACE}, as pid {dead.pid} there; left alone" in problem
    assert [process.pid for process in world.processes()] == [dead.pid]
    assert dead.record.exists()
    await world.end(dead.pid)


async def test_a_power_cut_leaves_no_folder_of_a_spawn(world: World) -> None:
    """Where temporary files outlive a boot."""
    dead = await dead_agent(world)
    folder = folder_of(dead.record)
    (folder / "half-written").touch()
    await world.end(dead.pid)
    dead.rewrite(boot_id="00000000-0000-0000-0000-000000000000")

    await dead.next_agent()

    assert not folder.exists()
    assert world.records() == []


async def test_what_stands_in_the_place_of_a_folder_is_told_and_left_to_the_operator(
    world: World, tmp_path: Path
) -> None:
    dead = await dead_agent(world)
    folder, precious = folder_of(dead.record), tmp_path / "precious"
    await world.end(dead.pid)
    folder.rename(precious)
    folder.symlink_to(precious)

    await dead.next_agent()

    why = "it is no folder, as the agent made it"
    assert world.backends.problems == (f"cannot remove {folder}: {why}; remove it by hand",)
    assert precious.is_dir()
    assert dead.record.exists()
    folder.unlink()
    await world.until(lambda: world.backends.problems == (), "it is gone")
    assert world.records() == []


def folder_of(record: Path) -> Path:
    (folder,) = json.loads(record.read_text())["scratch"]
    return Path(folder)


def without_privileges() -> tuple[str, ...]:
    """What makes root ask the modes of files, as others have to."""
    if os.geteuid() != 0:
        return ()
    dropped = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    with contextlib.suppress(OSError):
        if subprocess.run([*dropped, "true"], check=False, capture_output=True).returncode == 0:
            return dropped
    pytest.skip("needs setpriv, and the right to drop privileges")


def told_by_an_agent_without_privileges(data_dir: Path) -> list[str]:
    return told_by_an_agent(without_privileges(), data_dir)


def told_by_an_agent(wrapper: Sequence[str], data_dir: Path) -> list[str]:
    command = [*wrapper, sys.executable, "-m", "tests.apply.next_agent", str(data_dir)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60)
    told: list[str] = json.loads(done.stdout)
    return told


def container_command(*more: str) -> tuple[str, ...]:
    """What runs a command in a pid namespace of its own."""
    command = ("unshare", "--pid", "--fork", *more)
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to make a pid namespace")
    return command


@contextlib.contextmanager
def container() -> Iterator[str]:
    """The pid namespace of a process that lives."""
    with subprocess.Popen([*container_command(), "sleep", "3600"]) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(lambda: children.read_text() != "", what="it is there")
        first = int(children.read_text())
        try:
            namespace = pid_namespace(first)
            assert namespace not in (None, pid_namespace())
            yield str(namespace)
        finally:
            os.kill(first, signal.SIGKILL)
