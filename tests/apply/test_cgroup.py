"""A group of its own finds and ends what hides: another session, parent and environment."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.apply.cgroup import members, own_group, recorded
from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.observe.processes import environment_value, read_process
from reconciler.plan.ids import Nonce
from tests.apply.world import World

# A grandchild in a session of its own, without a parent or an environment that tell of it.
_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        told = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(told, 1)
        os.execve("/bin/sh", ["sh", "-c", "echo $$; exec sleep 3600"], {"PATH": "/usr/bin:/bin"})
    os._exit(0)
os.wait()
time.sleep(3600)
"""


@pytest.fixture
async def hidden(world: World, tmp_path: Path) -> int:
    """The pid of one that hides from a backend of `world`, as it was before anybody looked."""
    told = tmp_path / "told"
    view = await world.spawn(argv=(sys.executable, "-c", _PROGRAM, str(told)))
    await world.until(lambda: told.exists() and told.read_text().endswith("\n"), "it hides")
    process = read_process(int(told.read_text()))
    assert process is not None
    assert view.pid not in (process.session, process.parent)
    assert environment_value(process.pid, NONCE_VARIABLE) is None
    return process.pid


def lives(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and process.alive


async def test_who_hides_from_a_stop_is_found_by_its_group(
    ours: Path, world: World, hidden: int
) -> None:
    (view,) = world.backends.live()
    group = ours / f"xgen-{view.nonce}"
    assert {view.pid, hidden} <= members(group)

    await world.stop(view, stop_seconds=0.05)

    assert not lives(hidden)
    assert not group.exists()
    assert world.records() == []


async def test_who_hides_from_its_leaders_death_goes_after_it(
    ours: Path, world: World, hidden: int
) -> None:
    """Scenario 1, vllm#55510."""
    (view,) = world.backends.live()

    os.kill(view.pid, signal.SIGKILL)

    exited = await world.exit_of(view)
    assert exited.signal == "SIGKILL"
    assert not lives(hidden)


async def test_who_hides_and_dies_before_anybody_looked_is_reaped(
    ours: Path, world: World, hidden: int
) -> None:
    (view,) = world.backends.live()

    os.kill(hidden, signal.SIGKILL)

    await world.until(lambda: read_process(hidden) is None, "it is reaped")
    assert [each.nonce for each in world.backends.live()] == [view.nonce]
    await world.stop(view, stop_seconds=0.05)


async def test_the_next_agent_finds_who_hides(ours: Path, world: World, hidden: int) -> None:
    (view,) = world.backends.live()
    await world.backends.close()
    await world.end(view.pid)
    world.plays_init = True

    world.backends = world.make_backends()
    await world.backends.open()

    (left,) = world.backends.leftovers()
    await world.backends.stop(left.nonce, stop_seconds=0.05, kill_seconds=30.0)
    assert not lives(hidden)
    assert not (ours / f"xgen-{view.nonce}").exists()


async def test_the_next_agent_removes_the_group_of_what_ended_while_nobody_watched(
    ours: Path, world: World
) -> None:
    view = await world.spawn(argv=("sleep", "3600"))
    await world.backends.close()
    await world.end(view.pid)
    world.plays_init = True
    group = ours / f"xgen-{view.nonce}"
    assert group.exists()

    world.backends = world.make_backends()
    await world.backends.open()

    assert not group.exists()
    assert world.records() == []


@pytest.fixture
def made(ours: Path) -> Iterator[Path]:
    """A group that is not a spawn's."""
    group = ours / "xgen-test-of-strangers"
    group.mkdir()
    yield group
    group.rmdir()


def test_a_group_that_does_not_bear_the_nonce_is_nobodys(made: Path) -> None:
    assert recorded(Nonce("0123456789abcdef"), str(made)) is None
    assert recorded(Nonce("test-of-strangers"), str(made)) == made


def proc(folder: Path, *, group: str, mount: str | None) -> Path:
    """A /proc of an agent in that group, on a machine with that mount."""
    own = folder / "self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(f"12:pids:/\n{group}\n")
    lines = ["22 1 0:5 / /proc rw - proc proc rw", *([mount] if mount else [])]
    (own / "mountinfo").write_text("\n".join(lines) + "\n")
    return folder


def in_cgroup2(folder: Path, root: str = "/") -> str:
    escaped = str(folder).replace(" ", "\\040")
    return f"30 22 0:26 {root} {escaped} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("root", "group", "inside"),
    [
        ("/", "0::/", "."),
        ("/", "0::/system.slice/agent.service", "system.slice/agent.service"),
        ("/kubepods/pod1", "0::/kubepods/pod1/c", "c"),
    ],
)
def test_our_own_group_is_where_it_is_mounted(
    tmp_path: Path, root: str, group: str, inside: str
) -> None:
    folder = tmp_path / "c group" / inside
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    told = proc(tmp_path / "proc", group=group, mount=in_cgroup2(tmp_path / "c group", root))

    assert own_group(told) == folder


@pytest.mark.parametrize(
    ("group", "root", "why"),
    [
        ("1:name=x:/", "/", "no cgroup v2 is mounted"),
        ("0::/other", "/kubepods", "our group, /other, is not below "),
        ("0::/../../other", "/", "our group, /../../other, is not below "),
        ("0::/gone", "/", "our group, /gone, is not below "),
    ],
)
def test_without_a_group_of_our_own_the_reason_is_told(
    tmp_path: Path, group: str, root: str, why: str
) -> None:
    told = proc(tmp_path / "proc", group=group, mount=in_cgroup2(tmp_path, root))

    found = own_group(told)

    assert isinstance(found, str)
    assert found.startswith(why)


def test_where_cgroup_v2_is_not_mounted_the_reason_is_told(tmp_path: Path) -> None:
    assert own_group(proc(tmp_path, group="0::/", mount=None)) == "no cgroup v2 is mounted"
