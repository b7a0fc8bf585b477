import os
import subprocess
from pathlib import Path

import pytest

from reconciler.apply.logs import log_path, open_log, rotate, tail, write_header
from reconciler.plan.ids import ModelName

FOLDER = Path("/logs")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("llm-main", "llm-main.log"),
        ("org/model", "org%2Fmodel.log"),
        ("..", "%2E..log"),
        ("a%2Fb", "a%252Fb.log"),
    ],
)
def test_names_are_files_of_the_folder_and_differ(name: str, file: str) -> None:
    assert log_path(FOLDER, ModelName(name)) == FOLDER / file


def test_long_names_differ_and_fit() -> None:
    paths = {log_path(FOLDER, ModelName("é" * 250 + end)) for end in "ab"}

    assert len(paths) == 2
    assert all(len(path.name) < 255 - len(".1.partial") for path in paths)


def test_tail_is_of_what_stands_after_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("old\n")
    offset = path.stat().st_size
    path.write_text("old\nnew 1\nnew 2\nnew 3\n")

    assert tail(path, 2, from_offset=offset) == ("new 2", "new 3")
    assert tail(path, 9, from_offset=offset) == ("new 1", "new 2", "new 3")


def test_tail_is_fit_for_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"10%\r20%\r30%\n\x1b[31mred\x1b[0m \x07bell\n\n\xff\r\n" + b"y" * 9999)

    assert tail(path, 9) == ("30%", "red  bell", "�", "y" * 500)


def test_tail_leaves_our_own_lines_out(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = open_log(path)
    write_header(log, "starting x\nwith two lines")
    os.write(log, b"theirs\n")
    os.close(log)

    assert tail(path, 9) == ("theirs",)
    assert path.stat().st_mode & 0o777 == 0o600


def test_tail_of_nothing_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "missing.log", 9) == ()


def test_a_child_writes_on_into_a_rotated_log(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = open_log(path)
    command = ["sh", "-c", "echo before; read go; echo after"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log) as child:
        while path.stat().st_size == 0:
            os.sched_yield()
        assert rotate(path, 3)
        child.communicate(b"go\n")
    os.close(log)

    assert path.with_name("x.log.1").read_text() == "before\n"
    assert path.read_text() == "after\n"


def test_an_offset_from_before_a_rotation_hides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("a long line\n")
    rotate(path, 1)
    path.write_text("new\n")

    assert tail(path, 9, from_offset=12) == ("new",)


def test_a_short_or_missing_log_is_not_rotated(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    assert not rotate(path, 1)
    path.write_text("ab")
    assert not rotate(path, 2)
    assert not path.with_name("x.log.1").exists()


def test_a_log_that_cannot_be_copied_is_emptied_all_the_same(tmp_path: Path) -> None:
    """A full disk: here the place of the copy is taken by a folder."""
    path = tmp_path / "x.log"
    path.write_text("too long")
    path.with_name("x.log.1").mkdir()

    assert rotate(path, 1)

    assert path.read_text() == ""
    assert not path.with_name("x.log.1.partial").exists()
