"""Logs are read from their end on, over rotations, and show no key."""

from pathlib import Path

import pytest

from reconciler.apply.log_reader import LogReader
from reconciler.apply.logs import rotate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.log"


def reader(path: Path, *secrets: str) -> LogReader:
    return LogReader(path, lambda: secrets)


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as log:
        log.write(text if isinstance(text, bytes) else text.encode())


async def test_a_log_that_is_not_there_is_empty(path: Path) -> None:
    log = reader(path)
    assert await log.last(10) == b""
    assert await log.more() == b""


async def test_the_last_lines_are_as_many_as_asked(path: Path) -> None:
    append(path, "".join(f"line {number}\n" for number in range(50_000)))
    text = (await reader(path).last(3)).decode()
    assert text == "line 49997\nline 49998\nline 49999\n"


async def test_no_lines_are_asked_by_who_wants_only_what_comes(path: Path) -> None:
    append(path, "one\n")
    log = reader(path)
    assert await log.last(0) == b""
    append(path, "two\n")
    assert await log.more() == b"two\n"


async def test_what_comes_later_is_given_in_whole_lines(path: Path) -> None:
    append(path, "one\ntw")
    log = reader(path)
    assert await log.last(10) == b"one\n"
    append(path, "o\nthr")
    assert await log.more() == b"two\n"
    assert await log.more() == b""
    append(path, "ee\n")
    assert await log.more() == b"three\n"


async def test_a_rotation_loses_no_line(path: Path) -> None:
    log = reader(path)
    append(path, "one\n")
    await log.last(10)
    append(path, "two\nthr")
    assert rotate(path, max_bytes=1)
    append(path, "ee\nfour\n")
    assert await log.more() == b"two\nthree\nfour\n"


async def test_the_last_lines_reach_back_over_a_rotation(path: Path) -> None:
    append(path, "one\ntwo\n")
    assert rotate(path, max_bytes=1)
    append(path, "three\n")
    assert await reader(path).last(2) == b"two\nthree\n"


async def test_keys_do_not_show_wherever_they_stand(path: Path) -> None:
    log = reader(path, "k3yk3y")
    append(path, "starts with --api-key k3yk3y\n")
    assert await log.last(10) == b"starts with --api-key ***\n"
    append(path, "key k3y")
    assert await log.more() == b""
    append(path, "k3y\n")
    assert await log.more() == b"key ***\n"


async def test_a_key_in_a_line_without_end_does_not_show(path: Path) -> None:
    log = reader(path, "k3yk3y")
    await log.last(1)
    append(path, "x" * (70_000 - 3) + "k3y")
    first = await log.more()
    append(path, "k3y\n")
    assert b"k3y" not in first + await log.more()


async def test_a_progress_bar_shows_its_last_state(path: Path) -> None:
    log = reader(path)
    await log.last(1)
    append(path, "10 %\r20 %\r30")
    assert await log.more() == b"20 %\n"
    append(path, " %\r\ndone\n")
    assert await log.more() == b"30 %\ndone\n"


async def test_nothing_that_drives_a_terminal_passes(path: Path) -> None:
    append(path, b"\x1b[31mred\x1b[0m \x07bell \xff\n")
    assert (await reader(path).last(1)).decode() == "red  bell �\n"
