"""`validate` and `schema` as a shell or a CI job meets them."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from reconciler.cli.schema import schema
from reconciler.cli.validate import validate
from tests.manifest.texts import FOREIGN, manifest, model


def run(*arguments: str | Path) -> Result:
    app = typer.Typer()
    app.command()(validate)
    app.command()(schema)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.yaml").write_bytes(manifest("a", model("b", nodes=["node-b"])))
    (tmp_path / "b.yml").write_bytes(manifest("c"))
    (tmp_path / "c.json").write_bytes(manifest("d"))
    (tmp_path / ".hidden.yaml").write_bytes(b"}")
    (tmp_path / "notes.txt").write_bytes(b"}")
    below = tmp_path / "below.yaml"
    below.mkdir()
    (below / "e.yaml").write_bytes(b"}")
    return tmp_path


def test_a_good_folder_is_summed_up(folder: Path) -> None:
    result = run("validate", folder)

    assert result.exit_code == 0
    assert result.output == "3 files, 4 models, ok\n"


def test_in_a_cluster_a_model_that_names_no_nodes_is_said_to_run_nowhere(folder: Path) -> None:
    """As an agent with --peers judges it: the rest of the manifest holds."""
    for more, named in (((), False), (("--peers", "dns:models.svc:8000"), True)):
        result = run("validate", folder, "--node", "node-b", "--output", "json", *more)
        told = json.loads(result.output)
        assert (result.exit_code, told["ok"]) == (0, True)
        assert told["node"]["models"] == (["b"] if named else ["a", "b", "c", "d"])
        assert [each["name"] for each in told["node"]["elsewhere"]] == (
            ["a", "c", "d"] if named else []
        )
        said = [(each["severity"], each["path"], each["message"]) for each in told["problems"]]
        assert [each[:2] for each in said] == [("warning", "nodes")] * (3 if named else 0)
        assert all("would run at no node: it names no nodes" in each[2] for each in said)
    wrong = run("validate", folder, "--peers", "dns:")
    assert (wrong.exit_code, "--peers" in wrong.output) == (2, True)


def test_every_error_of_every_file_is_shown_and_the_exit_code_is_1(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(manifest(model("a", typo=1), model("a")))
    (folder / "b.yml").write_bytes(manifest("d"))

    result = run("validate", folder)

    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"{folder}/a.yaml:12:9: spec.models[0].typo: unknown key 'typo'")
    assert lines[1].startswith(f"{folder}/a.yaml:15:17: spec.models[1].name: 'a' is already")
    assert lines[2].startswith(f"{folder}/c.json:10:17: spec.models[0].name: 'd' is already")
    assert lines[2].endswith(f"at {folder}/b.yml:10:17")
    assert lines[3] == "3 files, 3 errors"


def test_a_file_whose_name_is_no_text_is_named_all_the_same(tmp_path: Path) -> None:
    Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"\xff.yaml"))).write_bytes(b"x: [")

    result = run("validate", tmp_path)

    assert result.exit_code == 1
    assert f"{tmp_path}/\\xff.yaml:" in result.output


def test_a_clash_with_a_file_that_has_other_errors_is_shown(folder: Path) -> None:
    (folder / "a.yaml").write_bytes(manifest(model("c", typo=1)))

    result = run("validate", folder)

    assert "unknown key 'typo'" in result.output
    assert "'c' is already the name of a model" in result.output


def test_a_warning_is_shown_and_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(manifest(model("a", extra_args={"no_such_flag": 1})))

    result = run("validate", file)

    assert result.exit_code == 0
    assert ": spec.models[0].extra_args.no_such_flag: warning: " in result.output
    assert result.output.endswith("1 file, 1 model, 1 warning, ok\n")


def test_the_node_that_is_asked_for(folder: Path) -> None:
    result = run("validate", folder, "--node", "node-a")

    assert "node-a would run:" in result.output
    assert "  not b: nodes: [node-b]; this node is node-a" in result.output


def test_json_for_machines(folder: Path) -> None:
    (folder / "k.yaml").write_bytes(FOREIGN)

    answer = json.loads(run("validate", folder, "--output", "json", "--node", "node-b").output)

    assert (answer["ok"], answer["files"], answer["models"]) == (True, 4, ["a", "b", "c", "d"])
    assert answer["skipped"][0]["kind"] == "Kustomization"
    assert answer["node"]["models"] == ["a", "b", "c", "d"]


def test_json_names_the_place_of_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"a: [")

    answer = json.loads(run("validate", file, "--output", "json").output)

    (problem,) = answer["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == (str(file), 1, 5)
    assert problem["severity"] == "error"
    assert answer["ok"] is False


def test_annotations_for_a_github_workflow(tmp_path: Path) -> None:
    file = tmp_path / "100%,a.yaml"
    file.write_bytes(manifest(model("a", xyzzy=1)))

    first = run("validate", file, "--output", "github").output.splitlines()[0]

    where = f"file={tmp_path}/100%25%2Ca.yaml,line=12,col=9"
    assert first == f"::error {where}::spec.models[0].xyzzy: unknown key 'xyzzy'"


def test_annotations_name_files_from_the_root_of_the_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "below.yaml" / "e.yaml").write_bytes(b"a: [")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    monkeypatch.chdir(folder / "below.yaml")

    output = run("validate", "./e.yaml", "--output", "github").output

    assert output.startswith("::error file=below.yaml/e.yaml,line=1,col=5::")


def test_a_report_for_gitlab(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fields are those of docs.gitlab.com, "Code Quality report format"."""
    unknown = {"no_such_flag": 1}
    (folder / "a.yaml").write_bytes(manifest(model("a", extra_args=unknown), model("e", xyzzy=1)))
    monkeypatch.setenv("CI_PROJECT_DIR", str(folder))

    result = run("validate", folder, "--output", "gitlab")

    warning, error = json.loads(result.output)
    assert result.exit_code == 1
    assert (warning["severity"], error["severity"]) == ("minor", "critical")
    assert error["description"] == "spec.models[1].xyzzy: unknown key 'xyzzy'"
    assert error["check_name"] == "xgen-model-error"
    assert error["location"] == {
        "path": "a.yaml",
        "positions": {"begin": {"line": 19, "column": 9}},
    }
    assert len({warning["fingerprint"], error["fingerprint"]}) == 2


def test_gitlab_knows_a_problem_again_that_stands_further_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    file = tmp_path / "a.yaml"
    prints = []
    for above in (b"", b"# one more line\n"):
        file.write_bytes(above + manifest(model("a", typo=1)))
        (problem,) = json.loads(run("validate", file, "--output", "gitlab").output)
        prints.append(problem["fingerprint"])

    assert prints[0] == prints[1]


def test_without_problems_gitlab_gets_an_empty_report(folder: Path) -> None:
    assert json.loads(run("validate", folder, "--output", "gitlab").output) == []


def test_a_problem_of_no_file_is_reported_at_the_path_that_was_asked_for(tmp_path: Path) -> None:
    (problem,) = json.loads(run("validate", tmp_path, "--output", "gitlab").output)

    assert problem["location"]["path"] == str(tmp_path)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [(manifest(), "allow_empty"), (FOREIGN, "no valid ModelManifest in the 1 file")],
)
def test_a_set_that_would_change_nothing_is_an_error(
    tmp_path: Path, content: bytes, wanted: str
) -> None:
    """argo-cd#10987: CI should refuse what a node would."""
    (tmp_path / "a.yaml").write_bytes(content)

    result = run("validate", tmp_path)

    assert result.exit_code == 1
    assert wanted in result.output


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    assert run("validate", tmp_path).exit_code == 1


def test_a_path_that_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    result = run("validate", tmp_path / "nowhere")

    assert result.exit_code == 64
    assert "no such file or directory" in result.output


def test_a_dangling_link_is_a_problem_of_its_own(folder: Path) -> None:
    (folder / "lost.yaml").symlink_to("nowhere")

    result = run("validate", folder)

    assert result.exit_code == 1
    assert "lost.yaml:1:1: cannot read this file: No such file or directory" in result.output


def test_a_file_that_is_named_twice_is_read_once(folder: Path) -> None:
    result = run("validate", folder, folder / "a.yaml")

    assert result.output == "3 files, 4 models, ok\n"


def test_a_link_is_read_like_a_file(tmp_path: Path) -> None:
    data = tmp_path / "..data"
    data.mkdir()
    (data / "a.yaml").write_bytes(manifest("a"))
    (tmp_path / "a.yaml").symlink_to(Path("..data") / "a.yaml")

    assert run("validate", tmp_path).output == "1 file, 1 model, ok\n"


@pytest.mark.parametrize(("target", "where"), [("../b.txt", " out of its folder"), ("b.txt", "")])
def test_a_link_that_git_would_refuse_is_a_warning(tmp_path: Path, target: str, where: str) -> None:
    folder = tmp_path / "prod"
    folder.mkdir()
    (folder / target).write_bytes(manifest("a"))
    (folder / "a.yaml").symlink_to(target)

    result = run("validate", folder)

    assert result.exit_code == 0
    assert result.output == (
        f"{folder}/a.yaml:1:1: warning: it is a symbolic link{where}: a node that reads this "
        "folder follows it, one that reads it from git refuses it\n1 file, 1 model, 1 warning, ok\n"
    )


def test_what_stands_in_a_file_that_is_no_manifest_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("/etc/passwd")

    result = run("validate", tmp_path)

    assert result.exit_code == 1
    assert "root:" not in result.output
    assert "must be a map with apiVersion, kind, metadata and spec, not a text" in result.output


@pytest.mark.parametrize(
    ("arguments", "title"),
    [((), "ModelManifest"), (("manifest",), "ModelManifest"), (("fleet",), "Fleet")],
)
def test_a_schema_is_printed(arguments: tuple[str, ...], title: str) -> None:
    assert json.loads(run("schema", *arguments).output)["title"] == title
