"""What a killed engine leaves of sockets and temporary files goes with it, and nothing else."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.apply.scratch import make, remove, scratch_of
from reconciler.errors import Transient
from reconciler.plan.ids import ModelName, Nonce
from tests.apply.world import SPEC, World, instance

NONCE = Nonce("0123456789abcdef0123456789abcdef")
# As vLLM and multiprocessing do: sockets under made-up names, and a file that is being written.
_PROGRAM = """
import os, signal, socket, sys, time, uuid
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for each in held:
    each.bind(f"{os.environ['SOCKETS']}/{uuid.uuid4()}")
os.makedirs(os.environ["TMPDIR"] + "/parts/half")
print("ready", os.environ["TMPDIR"], os.environ["SOCKETS"], file=open(sys.argv[1], "w"))
time.sleep(3600)
"""


@pytest.fixture
def far() -> Iterator[Path]:
    """A folder for temporary files whose path is too long for a socket."""
    folder = Path("/tmp") / ("xgen-test-" + "x" * 60)
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


async def spawn(world: World, told: Path, temporary: Path | None = None) -> tuple[Path, Path]:
    """The folders of a backend that has made its sockets: for temporary files, and for sockets."""
    launch = world.launch(argv=(sys.executable, "-c", _PROGRAM, str(told)))
    env = {**launch.env, **({"TMPDIR": str(temporary)} if temporary else {})}
    view = await world.backends.spawn(
        model=ModelName("x"),
        spec=SPEC,
        instance=instance(),
        gpus=(),
        launch=replace(launch, env=env, socket_variables=("SOCKETS",)),
    )
    world.sessions.add(view.pid)
    await world.until(lambda: told.exists() and told.read_text() != "", "it has its sockets")
    return folders(told)


def folders(told: Path) -> tuple[Path, Path]:
    _, own, sockets = told.read_text().split()
    return Path(own), Path(sockets)


def content(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def test_a_killed_backend_leaves_no_socket_and_no_temporary_file(
    world: World, tmp_path: Path
) -> None:
    own, sockets = await spawn(world, tmp_path / "told")
    (view,) = world.backends.live()
    assert own == sockets == Path(f"/tmp/xgen-{view.nonce}")
    assert own.stat().st_mode & 0o777 == 0o700
    assert len(content(own)) == 3

    await world.stop(view, stop_seconds=0.05)

    assert not own.exists()
    assert world.records() == []


async def test_sockets_have_a_short_path_where_that_for_temporary_files_is_long(
    world: World, tmp_path: Path, far: Path
) -> None:
    """A socket's path has 107 bytes at most: the program could not have bound it."""
    own, sockets = await spawn(world, tmp_path / "told", far)
    (view,) = world.backends.live()
    assert (own.parent, sockets) == (far, Path(f"/tmp/xgen-{view.nonce}"))

    await world.stop(view, stop_seconds=0.05)

    assert not own.exists()
    assert not sockets.exists()
    assert content(far) == []


async def test_the_next_agent_removes_what_ended_while_nobody_watched(
    world: World, tmp_path: Path
) -> None:
    own, _ = await spawn(world, tmp_path / "told")
    (view,) = world.backends.live()
    await world.backends.close()
    await world.end(view.pid)
    world.plays_init = True
    assert own.exists()

    world.backends = world.make_backends()
    await world.backends.open()

    assert not own.exists()
    assert world.records() == []


async def test_a_command_that_cannot_run_leaves_no_folder(world: World, far: Path) -> None:
    launch = world.launch(argv=("/nonexistent/engine",))

    with pytest.raises(Exception, match="no such file or directory"):
        await world.backends.spawn(
            model=ModelName("x"),
            spec=SPEC,
            instance=instance(),
            gpus=(),
            launch=replace(launch, env={**launch.env, "TMPDIR": str(far)}),
        )

    assert content(far) == []


async def test_where_no_folder_can_be_made_the_start_says_so(world: World) -> None:
    launch = world.launch()

    with pytest.raises(Transient, match=r"cannot start x: cannot make /proc/xgen-\w+: "):
        await world.backends.spawn(
            model=ModelName("x"),
            spec=SPEC,
            instance=instance(),
            gpus=(),
            launch=replace(launch, env={**launch.env, "TMPDIR": "/proc"}),
        )

    assert world.records() == []


def test_a_folder_for_temporary_files_that_is_not_there_is_none() -> None:
    found = scratch_of(NONCE, "/nonexistent", with_sockets=True)

    assert found.folders == (f"/tmp/xgen-{NONCE}",)


def test_who_is_not_told_where_sockets_go_has_one_folder(far: Path) -> None:
    """/tmp may be read-only then."""
    assert scratch_of(NONCE, str(far), with_sockets=False).folders == (f"{far}/xgen-{NONCE}",)


def test_only_what_bears_the_nonce_is_removed(tmp_path: Path) -> None:
    """A record that was tampered with, or a link in the place of a folder, costs nobody a file."""
    precious = tmp_path / "precious"
    precious.mkdir()
    link = tmp_path / f"xgen-{NONCE}"
    link.symlink_to(precious)

    after = tmp_path / "more" / link.name
    after.mkdir(parents=True)

    problem = remove(NONCE, [str(precious), str(link), str(tmp_path / "none"), str(after)])

    why = "it is no folder, as the agent made it"
    assert problem == f"cannot remove {link}: {why}; remove it by hand"
    assert not after.exists()
    assert precious.is_dir()
    assert link.is_symlink()


def test_what_is_there_already_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / f"xgen-{NONCE}").mkdir()

    with pytest.raises(FileExistsError):
        make(scratch_of(NONCE, str(tmp_path), with_sockets=False))
