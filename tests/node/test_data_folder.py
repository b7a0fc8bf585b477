"""The data folder: one owner, one node, one version."""

import os
import shutil
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


def test_what_is_removed_of_a_running_agents_folder_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with DataFolder(path) as folder:
        folder.remember_name(A)
        folder.announce("http://127.0.0.1:8000", {})
        before = contents(path)
        assert folder.hold() is None

        (path / "agent.json").unlink()
        assert folder.hold() is None
        assert contents(path) == before

        shutil.rmtree(path)
        assert folder.hold() is None
        assert contents(path) == before
        with pytest.raises(Rejected, match="another agent"), DataFolder(path):
            pass
    assert agent_url(path) is None
    with DataFolder(path):
        pass


def test_a_folder_that_was_moved_away_is_nobody_elses_while_its_agent_runs(tmp_path: Path) -> None:
    """Its records are of processes that live."""
    path, away = tmp_path / "data", tmp_path / "away"
    with DataFolder(path) as folder:
        path.rename(away)
        assert folder.hold() is None
        for each in (path, away):
            with pytest.raises(Rejected, match="another agent"), DataFolder(each):
                pass


def test_another_agents_folder_in_its_place_is_left_alone(tmp_path: Path) -> None:
    path, away, other = tmp_path / "data", tmp_path / "away", tmp_path / "other"
    with DataFolder(path) as folder, DataFolder(other) as of_other:
        folder.announce("http://127.0.0.1:8000", {})
        of_other.announce("http://127.0.0.1:9000", {})
        path.rename(away)
        other.rename(path)
        before = contents(path)

        said = folder.hold()

        assert said == (
            f"data folder {path} was replaced: another agent (pid {os.getpid()}) owns what is "
            "there; put the old one back, or end this agent; until then nothing is started or "
            "written"
        )
        assert contents(path) == before
        path.rename(other)
        away.rename(path)
        assert folder.hold() is None


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("node.json", '{"node": "node-b"}', "what is there belongs to node node-b"),
        ("version", "2\n", "what is there has version '2', this release reads version 1"),
    ],
)
def test_a_folder_of_another_node_or_release_in_its_place_is_left_alone(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    path = tmp_path / "data"
    with DataFolder(path) as folder:
        folder.remember_name(A)
        path.rename(tmp_path / "away")
        path.mkdir()
        (path / name).write_text(content)

        assert f"was replaced: {said}; " in (folder.hold() or "")

        assert [each.name for each in path.iterdir()] == [name]


def test_a_backup_in_its_place_becomes_the_agents_own(tmp_path: Path) -> None:
    path, backup = tmp_path / "data", tmp_path / "backup"
    with DataFolder(path) as folder:
        folder.remember_name(A)
        folder.announce("http://127.0.0.1:7000", {})
        shutil.copytree(path, backup)
        folder.announce("http://127.0.0.1:8000", {})
        shutil.rmtree(path)
        backup.rename(path)

        assert folder.hold() is None

        assert agent_url(path) == "http://127.0.0.1:8000"
        with pytest.raises(Rejected, match="another agent"), DataFolder(path):
            pass


def test_a_folder_that_cannot_be_used_is_told_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with DataFolder(path) as folder:
        path.rename(tmp_path / "away")
        path.write_text("a file in its place")
        said = folder.hold() or ""
        assert said.startswith(f"cannot use data folder {path}: ")
        assert said.endswith("; what changes now would not be known to the next agent")

        path.unlink()
        assert folder.hold() is None


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}
