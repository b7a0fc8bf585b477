"""The data folder: one owner, one node, one version."""

from pathlib import Path

import pytest

from reconciler.errors import Rejected
from reconciler.node.data_folder import DataFolder, agent_url, read_json
from reconciler.plan.ids import NodeName

A, B = NodeName("node-a"), NodeName("node-b")


def test_takes_the_host_name_when_nothing_else_is_known(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        assert folder.settle_name(None, host="box", rename_from=None) == "box"


def test_remembers_the_name_it_was_given(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        folder.remember_name(A)
    with DataFolder(tmp_path) as folder:
        assert folder.settle_name(None, host="box", rename_from=None) == A


def test_refuses_another_name_and_says_how_to_mean_it(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        folder.remember_name(A)
        with pytest.raises(Rejected, match="--rename-node node-a"):
            folder.settle_name(B, host="box", rename_from=None)
        assert folder.settle_name(None, host="box", rename_from=None) == A


def test_takes_another_name_when_the_old_one_is_given_up(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        folder.remember_name(A)
        assert folder.settle_name(B, host="box", rename_from=A) == B
        folder.remember_name(B)
    with DataFolder(tmp_path) as folder:
        assert folder.settle_name(None, host="box", rename_from=None) == B


def test_refuses_to_give_up_a_name_that_it_does_not_have(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        folder.remember_name(A)
        with pytest.raises(Rejected):
            folder.settle_name(B, host="box", rename_from=NodeName("node-c"))


def test_has_one_owner_at_a_time(tmp_path: Path) -> None:
    with DataFolder(tmp_path), pytest.raises(Rejected, match="another agent"), DataFolder(tmp_path):
        pass
    with DataFolder(tmp_path):
        pass


def test_forgets_the_url_when_the_agent_ends(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        folder.announce("http://127.0.0.1:8000", {})
        assert agent_url(tmp_path) == "http://127.0.0.1:8000"
    assert agent_url(tmp_path) is None


def test_refuses_a_folder_of_a_later_release(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("7\n", encoding="utf-8")
    with pytest.raises(Rejected, match="version '7'"), DataFolder(tmp_path):
        pass


def test_survives_a_torn_record_of_the_name(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"node": "no', encoding="utf-8")
    assert read_json(tmp_path / "node.json") == {}
    with DataFolder(tmp_path) as folder:
        assert folder.settle_name(A, host="box", rename_from=None) == A


def test_says_which_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Rejected, match="--data-dir"), DataFolder(tmp_path / "file" / "data"):
        pass


def test_a_name_that_was_never_run_is_not_remembered(tmp_path: Path) -> None:
    with DataFolder(tmp_path) as folder:
        folder.settle_name(None, host="box", rename_from=None)
    with DataFolder(tmp_path) as folder:
        assert folder.settle_name(A, host="box", rename_from=None) == A


@pytest.mark.parametrize("name", ["all", " "])
def test_refuses_what_is_no_name_of_a_node(tmp_path: Path, name: str) -> None:
    with DataFolder(tmp_path) as folder, pytest.raises(Rejected, match="--node NAME"):
        folder.settle_name(NodeName(name), host="box", rename_from=None)
