import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from reconciler.observe.processes import (
    boot_id,
    environment_value,
    pid_namespace,
    read_process,
    read_processes,
    removed_files,
    ticks_since_boot,
)

HOLDER = """
import mmap, os, sys
def mapped(path):
    with open(path, "rb") as file:
        return mmap.mmap(os.dup(file.fileno()), 0, access=mmap.ACCESS_READ)
path = sys.argv[1]
held = {held}
print(flush=True)
sys.stdin.read()
"""
"""Keeps a file, and tells when it does."""


def test_reads_itself() -> None:
    process = read_processes()[os.getpid()]

    assert process == read_process(os.getpid())
    assert (process.parent, process.group) == (os.getppid(), os.getpgrp())
    assert process.session == os.getsid(0)
    assert 0 < process.start_ticks < ticks_since_boot()
    assert process.alive


def test_a_name_may_hold_parentheses_and_spaces(tmp_path: Path) -> None:
    program = tmp_path / "a) R (b"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([str(program), "3600"]) as child:
        process = read_process(child.pid)
        child.kill()

    assert process is not None
    assert (process.name, process.parent) == ("a) R (b", os.getpid())


def test_a_zombie_is_not_alive_and_has_no_environment() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], env={"NAME": "value"}) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        process = read_process(child.pid)
        value = environment_value(child.pid, "NAME")

    assert process is not None
    assert not process.alive
    assert value is None


def test_what_is_gone_is_absent() -> None:
    with subprocess.Popen(["true"]) as child:
        pass

    assert read_process(child.pid) is None
    assert environment_value(child.pid, "PATH") is None
    assert pid_namespace(child.pid) is None


def test_a_variable_is_found_by_its_whole_name() -> None:
    env = {"MY_NAME": "other", "NAME": "a=b", "NAME_2": "other"}
    with subprocess.Popen(["cat"], stdin=PIPE, stdout=PIPE, env=env, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"there\n")
        child.stdout.readline()  # the environment shows a moment after exec
        value = environment_value(child.pid, "NAME")

    assert value == "a=b"
    assert environment_value(os.getpid(), "NO_SUCH_VARIABLE") is None


@pytest.mark.parametrize("held", ["os.open(path, os.O_RDONLY)", "mapped(path)"])
def test_a_file_that_has_gone_is_told_of_whoever_reads_it(tmp_path: Path, held: str) -> None:
    path, other = tmp_path / "models/a b.gguf", tmp_path / "models/other.gguf"
    path.parent.mkdir()
    path.write_bytes(b"old")
    other.write_bytes(b"other")
    inode = path.stat().st_ino
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(held=held), str(path)], stdin=PIPE, stdout=PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        before = removed_files(child.pid, str(path.parent))
        other.replace(path)
        after = removed_files(child.pid, str(path.parent))
        elsewhere = removed_files(child.pid, str(tmp_path / "mod"))
        child.communicate()

    assert (before, after, elsewhere) == (frozenset(), frozenset({inode}), frozenset())
    assert removed_files(child.pid, str(path.parent)) == frozenset()


def test_boot_and_namespace_are_named() -> None:
    assert len(boot_id()) == 36
    assert pid_namespace() == pid_namespace(os.getpid())
