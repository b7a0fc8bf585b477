"""Numbers of GPUs that outlive their agent."""

import os
import stat
from pathlib import Path

import pytest

from reconciler.apply.gpu_numbers import GpuNumbers
from reconciler.errors import Transient
from reconciler.own_files import FilesKept
from reconciler.plan.gpu_roll import enrolled, numbered
from tests.plan.gpu import answers, nvidia

KNOWN = numbered(enrolled(None, answers(nvidia(1), nvidia(2, utilization=4)), {}))


def test_what_is_written_is_known_to_the_next_agent(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    assert GpuNumbers(path).roll is None

    GpuNumbers(path).write(KNOWN)

    kept = GpuNumbers(path).roll
    assert kept is not None
    assert [(each.index, each.identity) for each in kept.missing] == [(0, "GPU-n1"), (1, "GPU-n2")]
    assert [each.name for each in tmp_path.iterdir()] == ["gpus.json"]


@pytest.mark.parametrize("text", ["", "{", '{"version": 2, "gpus": []}', '{"version": 1}', "\xff"])
def test_a_torn_file_or_one_of_another_release_is_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(text, encoding="latin-1")

    numbers = GpuNumbers(path)
    assert numbers.roll is None
    assert numbers.keep() == FilesKept()
    assert path.read_text(encoding="latin-1") == text

    numbers.write(KNOWN)

    aside = tmp_path / "gpus.json.unread"
    assert aside.read_text(encoding="latin-1") == text
    (told,) = numbers.keep().rewritten
    assert told.startswith(f"cannot read {path}: ")
    assert told.endswith(f"the GPUs are numbered anew: it is kept as {aside}")
    assert numbers.keep() == FilesKept()
    assert GpuNumbers(path).roll is not None


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    os.mkfifo(path)
    numbers = GpuNumbers(path)
    numbers.write(KNOWN)
    assert stat.S_ISFIFO((tmp_path / "gpus.json.unread").stat().st_mode)
    assert GpuNumbers(path).roll is not None


@pytest.mark.parametrize("read_again", [False, True])
def test_one_that_somebody_removes_or_changes_is_there_again(
    tmp_path: Path, read_again: bool
) -> None:
    path = tmp_path / "gpus.json"
    numbers = GpuNumbers(path)
    numbers.write(KNOWN)
    content = path.read_bytes()
    if read_again:
        numbers = GpuNumbers(path)
    assert numbers.keep() == FilesKept()

    path.unlink()
    (gone,) = numbers.keep().rewritten
    path.write_text("{}")
    (changed,) = numbers.keep().rewritten

    why = "is written anew; without it a restart would number the GPUs anew"
    assert gone == f"{path} was gone, and {why}"
    assert changed == f"{path} was changed, and {why}"
    assert path.read_bytes() == content
    assert numbers.keep() == FilesKept()


def test_what_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    numbers = GpuNumbers(tmp_path / "gone" / "gpus.json")

    with pytest.raises(Transient, match=r"cannot write .*/gone/gpus.json: no such file"):
        numbers.write(())
