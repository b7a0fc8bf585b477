import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.atomic_file import make_folder, replace_file

WRITER = """
import itertools, sys
from pathlib import Path
from reconciler.atomic_file import replace_file
for number in itertools.count():
    replace_file(Path(sys.argv[1]), b"%d\\n" % number * 100_000)
    print(number, flush=True)
"""


def test_a_file_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for kill_after in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(kill_after + 1):
                assert writer.stdout.readline()
            writer.kill()
        lines = path.read_bytes().splitlines()
        assert (len(lines), len(set(lines))) == (100_000, 1)


def test_it_is_for_its_owner_only_unless_another_mode_is_given(tmp_path: Path) -> None:
    replace_file(tmp_path / "own", b"secret")
    before = os.umask(0o022)
    try:
        replace_file(tmp_path / "open", b"", mode=0o666)
    finally:
        os.umask(before)

    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644


def test_one_that_cannot_be_written_leaves_the_old_one_alone(tmp_path: Path) -> None:
    replace_file(tmp_path / "file", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            replace_file(tmp_path / "file", bytes(4096))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_what_lies_under_its_names_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    for name in ("file", "file.partial"):
        (tmp_path / name).symlink_to(other)

    replace_file(tmp_path / "file", b"new")

    assert other.read_text() == "of somebody else"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_folder_is_made_with_its_parents_and_its_mode(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b", mode=0o700)
    make_folder(tmp_path / "a" / "b", mode=0o750)

    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
