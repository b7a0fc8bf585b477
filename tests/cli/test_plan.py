"""`plan` without an agent, as a shell or a CI job meets it."""

from pathlib import Path

import pytest

from tests.cli.command import on_a_terminal, xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.agent import MINIMAL_GGUF
from tests.manifest.texts import manifest, model

OFFLINE = ("--offline", "--node", "node-a")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chat = model("chat", aliases=["gpt-4o-mini"], fallback={"source": "gguf/org_other"})
    there = model("there", nodes=["node-b"])
    (tmp_path / "a.json").write_bytes(manifest(chat, model("off", enabled=False), there))
    return tmp_path


def test_from_nothing_says_what_would_start(folder: Path) -> None:
    result = xgen_model("plan", "--manifest", folder, *OFFLINE)

    assert (result.returncode, result.stderr) == (2, "")
    assert result.stdout == (
        "node-a, from nothing (no agent was asked)\n"
        "\n"
        "  + chat  start      in the manifest and not running\n"
        "      source: gguf/org_chat, fetched from the hub unless it is cached\n"
        "      or its fallback gguf/org_other, where no backend runs that\n"
        "  = off   unchanged  enabled: false\n"
        "    there is not for this node: nodes: [node-b]; this node is node-a\n"
        "\n"
        "+ start  = unchanged\n"
        "1 to start, 0 to restart, 0 to stop, 1 unchanged; 1 download of unknown size\n"
    )


def test_nothing_to_do_is_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(manifest(model("off", enabled=False)))

    assert xgen_model("plan", "--manifest", tmp_path, *OFFLINE).returncode == 0


def test_without_a_node_each_that_the_manifest_names_is_planned(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(manifest(model("a", nodes=["n1"]), model("b", nodes=["n2", "n1"])))

    result = xgen_model("plan", "--manifest", file, "--offline", "--output", "json")

    plan = plan_of(result.stdout)
    assert [(node["node"], len(node["models"])) for node in plan["nodes"]] == [("n1", 2), ("n2", 1)]


def test_json_is_versioned_and_names_every_model(folder: Path) -> None:
    result = xgen_model("plan", "--manifest", folder, *OFFLINE, "--output", "json")

    plan = plan_of(result.stdout)
    assert (plan["api"], plan["agent"], plan["changes"]) == (1, None, True)
    assert plan["summary"] == {
        "start": 1,
        "restart": 0,
        "surge": 0,
        "reroute": 0,
        "stop": 0,
        "refused": 0,
        "unchanged": 1,
    }
    assert plan["nodes"][0]["models"][0] == {
        "model": "chat",
        "action": "start",
        "reason": "in the manifest and not running",
        "state": None,
        "source": "gguf/org_chat",
        "fallback": "gguf/org_other",
        "engine": None,
        "fetch": True,
        "memory": None,
        "memory_on_gpus": {},
        "download_bytes": None,
        "download_with": None,
        "cached_bytes": None,
        "downtime_seconds": 0.0,
        "ready_seconds": None,
        "held": None,
        "fields": [],
    }


def test_markdown_for_a_pull_request(folder: Path) -> None:
    result = xgen_model("plan", "--manifest", folder, *OFFLINE, "--output", "markdown")

    assert result.returncode == 2
    assert result.stdout.startswith(f"<!-- xgen-model plan: {folder} -->\n")
    row = "| `+` | `chat` | `node-a` | **start** | in the manifest and not running<br>"
    assert row in result.stdout
    assert ": **1 to start, 0 to restart, 0 to stop, 1 unchanged; " in result.stdout


def test_an_invalid_manifest_is_an_error_with_every_place(folder: Path) -> None:
    file = folder / "b.json"
    file.write_bytes(manifest(model("x", typo=1), model("chat")))

    result = xgen_model("plan", "--manifest", folder, *OFFLINE)

    assert (result.returncode, result.stdout) == (1, "")
    assert f"{file}:12:9: spec.models[0].typo: unknown key" in result.stderr
    assert "an agent would keep what it runs" in result.stderr


def test_a_manifest_that_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    result = xgen_model("plan", "--manifest", tmp_path / "none", *OFFLINE)

    assert result.returncode == 64
    assert "there is no file or directory" in result.stderr


def test_without_a_manifest_and_without_an_agent_the_next_step_is_named(tmp_path: Path) -> None:
    result = xgen_model("plan", "--data-dir", tmp_path)

    assert result.returncode == 1
    assert "--server URL" in result.stderr


def test_an_agent_that_is_away_is_an_error_and_offline_the_way_around_it(folder: Path) -> None:
    result = xgen_model("plan", "--manifest", folder, "--server", "127.0.0.1:9")

    assert (result.returncode, result.stdout) == (1, "")
    assert "connection refused" in result.stderr
    assert result.stderr.endswith("or plan from nothing with --offline\n")


def test_colours_on_a_terminal_only_and_not_under_no_color(folder: Path) -> None:
    arguments = ("plan", "--manifest", folder, *OFFLINE)

    assert "\x1b[" in on_a_terminal(*arguments, columns=80)[1]
    assert "\x1b[" not in on_a_terminal(*arguments, columns=80, env={"NO_COLOR": "1"})[1]


def test_what_is_piped_is_never_wrapped(tmp_path: Path) -> None:
    deep = tmp_path / ("long-folder-name-" * 8)
    deep.mkdir()
    file = deep / "models.json"
    file.write_bytes(manifest(model("x", typo=1)))

    result = xgen_model("plan", "--manifest", file, *OFFLINE, env={"COLUMNS": "80"})

    assert f"{file}:" in result.stderr


def test_a_hub_tells_how_much_is_to_download(folder: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "model.gguf").write_bytes(MINIMAL_GGUF)
    (tmp_path / "hub").mkdir()
    pushed = xgen_model("hub", "push", files, "gguf/org_chat", "--hub", tmp_path / "hub")
    assert pushed.returncode == 0, pushed.stderr

    asked = ("plan", "--manifest", folder / "a.json", *OFFLINE, "--output", "json")
    planned = plan_of(xgen_model(*asked, "--hub", tmp_path / "hub").stdout)
    away = xgen_model(*asked, "--hub", tmp_path / "nowhere")

    assert planned["nodes"][0]["models"][0]["download_bytes"] == len(MINIMAL_GGUF)
    assert planned["totals"]["download_bytes"] == len(MINIMAL_GGUF)
    assert (away.returncode, away.stdout) == (1, "")
    assert "cannot list" in away.stderr


def test_an_old_folder_without_manifests_is_nothing_that_runs(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()

    words = ("plan", "--manifest", folder / "a.json", "--from", tmp_path / "old")
    planned = xgen_model(*words, "--node", "node-a")
    missing = xgen_model("plan", "--manifest", folder / "a.json", "--from", tmp_path / "none")

    assert planned.returncode == 2
    assert f"node-a, from nothing, since {tmp_path}/old holds no manifest" in planned.stdout
    assert "  + chat  start      " in planned.stdout
    assert (missing.returncode, "for --from: there is no file" in missing.stderr) == (64, True)


def test_without_a_node_nothing_would_move_and_that_is_said(folder: Path) -> None:
    result = xgen_model("plan", "--manifest", folder, *OFFLINE, "--without", "node-b")

    assert (result.returncode, result.stdout) == (1, "")
    assert "that comes with `replicas`, which are not supported yet" in result.stderr


def test_a_fleet_file_with_mistakes_is_an_error_with_every_place(
    folder: Path, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("apiVersion: xgen.io/v1alpha1\nkind: Fleet\nspec: {nodes: [{nam: a}]}\n")

    result = xgen_model("plan", "--manifest", folder / "a.json", "--fleet", fleet)

    assert (result.returncode, result.stdout) == (1, "")
    assert f"{fleet}:3:17: spec.nodes[0].nam: unknown key 'nam'; did you mean 'name'?" in (
        result.stderr
    )
    assert "cannot use the fleet file" in result.stderr
