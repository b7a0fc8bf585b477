"""A world of backends; each test proves by /proc that nothing of it is left."""

import contextlib
import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apply.world import World


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
    assert not left, f"left behind: {', '.join(map(str, left))}"
    assert not live
