"""The name that a node gets."""

from pathlib import Path

import pytest

from reconciler.cli.node_name import check_default, node_name
from reconciler.errors import Rejected
from tests.cli.command import xgen_model


@pytest.mark.parametrize("command", ["run", "plan", "doctor"])
@pytest.mark.parametrize("how", ["--node", "NODE_NAME", "XGEN_NODE"])
def test_a_name_that_no_manifest_could_have_is_bad_usage(
    command: str, how: str, tmp_path: Path
) -> None:
    flags = [how, "bad name!"] if how == "--node" else []
    env = {} if how == "--node" else {how: "bad name!"}

    result = xgen_model(
        command, "--manifest", tmp_path / "m.yaml", "--data-dir", tmp_path / "data", *flags, env=env
    )

    assert (result.returncode, result.stdout) == (64, "")
    assert "must be a node name (letters, digits, '.', '_' and '-'), not" in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("given", [None, ""])
def test_nothing_is_no_name(given: str | None) -> None:
    assert node_name(given) is None


def test_a_host_whose_name_is_none_needs_one(tmp_path: Path) -> None:
    check_default(tmp_path, "gpu-1.example_a")
    with pytest.raises(Rejected, match=r"after its host: the name must be .*; give --node NAME"):
        check_default(tmp_path, "gpu 1")


def test_a_remembered_name_needs_no_host_name(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"node": "node-a"}', encoding="utf-8")

    check_default(tmp_path, "gpu 1")
