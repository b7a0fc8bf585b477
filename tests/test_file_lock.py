"""Locks between processes, which a killed one lets go."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.errors import Transient
from reconciler.file_lock import held, held_now, held_without_trace, is_at

_HOLDER = """
import sys
from pathlib import Path
from reconciler import file_lock
with getattr(file_lock, sys.argv[1])(Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(how: str, path: Path) -> Iterator["subprocess.Popen[str]"]:
    """It holds the lock until it is killed, or its stdin is closed."""
    argv = [sys.executable, "-c", _HOLDER, how, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_one_process_has_it_until_it_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with another_process("held", lock) as process:
        with held_now(lock) as ours:
            assert not ours
        with pytest.raises(Transient), held(lock, cancelled=lambda: True):
            pass
        process.kill()
        process.wait()
        with held(lock), held_now(lock) as twice:
            assert not twice


def test_a_file_that_was_left_locks_nobody_out_and_goes(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with another_process("held_without_trace", lock) as process:
        process.kill()
        process.wait()
    assert lock.exists()

    with held_without_trace(lock):
        pass

    assert not lock.exists()


def test_who_waits_for_a_file_that_goes_makes_another(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with another_process("held_without_trace", lock) as process:
        assert process.stdin is not None
        process.stdin.close()  # it takes the file away, and ends
        with held_without_trace(lock):
            assert lock.exists()
            with held_now(lock) as ours:
                assert not ours


def test_an_open_file_that_was_taken_away_is_not_at_its_name(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        assert is_at(path, file.fileno())
        path.unlink()
        assert not is_at(path, file.fileno())
        path.touch()
        assert not is_at(path, file.fileno())
