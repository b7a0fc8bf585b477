"""Numbers of GPUs that outlive their agent."""

from pathlib import Path

import pytest

from reconciler.apply.gpu_numbers import GpuNumbers
from reconciler.errors import Transient
from reconciler.plan.gpu_roll import enrolled, numbered
from tests.plan.gpu import answers, nvidia


def test_what_is_written_is_known_to_the_next_agent(tmp_path: Path) -> None:
    roll = enrolled(None, answers(nvidia(1), nvidia(2, utilization=4)), {})
    path = tmp_path / "gpus.json"
    assert GpuNumbers(path).roll is None

    GpuNumbers(path).write(numbered(roll))

    kept = GpuNumbers(path).roll
    assert kept is not None
    assert [(each.index, each.identity) for each in kept.missing] == [(0, "GPU-n1"), (1, "GPU-n2")]
    assert [each.name for each in tmp_path.iterdir()] == ["gpus.json"]


@pytest.mark.parametrize("text", ["", "{", '{"version": 2, "gpus": []}', '{"version": 1}', "\xff"])
def test_a_torn_file_or_one_of_another_release_is_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(text, encoding="latin-1")

    assert GpuNumbers(path).roll is None


def test_what_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    numbers = GpuNumbers(tmp_path / "gone" / "gpus.json")

    with pytest.raises(Transient, match=r"cannot write .*/gone/gpus.json: no such file"):
        numbers.write(())
