"""A world of backends; each test proves by /proc that nothing of it is left."""

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from reconciler.apply.cgroup import own_group
from tests.apply.world import World
from tests.traces import remove_traces


@pytest.fixture
async def full_disk(world: World) -> AsyncIterator[Path]:
    """The folder of the records, on a file system without a free block."""
    folder = world.data_dir / "spawns"
    with mounted(["-t", "tmpfs", "-o", "size=4k", "none", str(folder)], folder):
        (folder / "somebody-else").write_bytes(bytes(4096))
        yield folder


@contextlib.contextmanager
def mounted(arguments: list[str], folder: Path, *, then: str | None = None) -> Iterator[None]:
    """`then`: options of a second mount, which some file systems ask for."""
    mount = ["mount", *arguments]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        if then is not None:
            subprocess.run(["mount", "-o", then, str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def ours() -> Path:
    found = own_group()
    if isinstance(found, str):
        pytest.skip(f"no cgroup v2 that can be written: {found}")
    return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Open; a test that leaves a process, living or zombie, fails."""
    made = World(data_dir=tmp_path / "data", mark=secrets.token_hex(8))
    await made.backends.open()
    try:
        yield made
        left = [*made.processes(), *made.zombies()]
        live = made.backends.live()
    finally:
        await made.backends.close()
        for process in made.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        remove_traces(made.data_dir)
    assert not left, f"left behind: {', '.join(map(str, left))}"
    assert not live
