"""A process that is killed between any two steps leaves nothing that looks complete and is not."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("start", ["fresh", "older"])
def test_a_kill_between_any_two_steps_costs_a_fetch_at_most(tmp_path: Path, start: str) -> None:
    argv = [sys.executable, "-m", "tests.cache.crashing"]
    folders = [str(tmp_path / "hub"), str(tmp_path / "models")]

    done = subprocess.run([*argv, *folders, start], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert int(done.stdout) > 50
