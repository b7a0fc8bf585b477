"""`doctor` on machines that are well and on others; nothing runs but the command."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from reconciler.apply.cgroup import own_group
from tests.cli.command import xgen_model
from tests.e2e.agent import MINIMAL_GGUF, llama_server_stand_in
from tests.manifest.texts import manifest, model

Check = dict[str, str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A manifest, a hub that holds its model, an engine, and an empty data folder."""
    file = tmp_path / "hub" / "gguf" / "org_m" / "m.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(MINIMAL_GGUF)
    (tmp_path / "m.json").write_bytes(manifest(model("m", gpus=0)))
    llama_server_stand_in(tmp_path)
    return tmp_path


def checked(
    root: Path, *arguments: str | Path, env: Mapping[str, str] | None = None
) -> tuple[int, dict[str, list[Check]]]:
    """The exit code, and what was found by subject."""
    given: list[str | Path] = [
        *("--manifest", root / "m.json"),
        *("--hub", root / "hub"),
        *("--data-dir", root / "data"),
        *("--llama-server", root / "llama-server"),
        *("--listen", "127.0.0.1:0"),
        *("--node", "node-a"),
        *("--output", "json"),
    ]
    result = xgen_model("doctor", *given, *arguments, env=env)
    found: dict[str, list[Check]] = {}
    for check in json.loads(result.stdout)["checks"]:
        found.setdefault(check["subject"], []).append(check)
    return result.returncode, found


def failing(found: dict[str, list[Check]]) -> list[str]:
    return [
        check["subject"] for each in found.values() for check in each if check["level"] == "fail"
    ]


def test_a_machine_that_is_well_passes_and_nothing_is_made(root: Path) -> None:
    code, found = checked(root)

    assert (code, failing(found)) == (0, [])
    assert found["selection"][0]["message"] == "node-a would run m"
    assert found["files of m"][0]["message"] == f"gguf/org_m: 1 file, {len(MINIMAL_GGUF)} bytes"
    assert found["hub"][0]["message"].endswith(" answers, and holds 1 prefix")
    assert not (root / "data").exists()


def test_what_the_node_allows_is_no_warning(root: Path) -> None:
    env = {"LD_PRELOAD": "/lib/x.so", "LD_AUDIT": "/lib/y.so"}
    (root / "m.json").write_bytes(manifest(model("m", gpus=0, env=env)))

    _, strict = checked(root)
    _, one = checked(root, "--allow-engine-env", "LD_PRELOAD")
    _, both = checked(root, "--allow-engine-env", "LD_PRELOAD", "--allow-engine-env", "LD_AUDIT")

    assert "(--allow-engine-env LD_PRELOAD)" in strict["manifest"][0]["message"]
    (said,) = one["manifest"]
    assert said["level"] == "warn"
    assert "(--allow-engine-env LD_PRELOAD)" not in said["message"]
    assert "(--allow-engine-env LD_AUDIT)" in said["message"]
    (said,) = both["manifest"]
    allowed = "--allow-engine-env LD_AUDIT, --allow-engine-env LD_PRELOAD"
    assert said["level"] == "ok"
    assert said["message"].endswith(f"; this node allows what it asks for: {allowed}")


def test_says_whether_backends_get_a_group_of_their_own(root: Path) -> None:
    _, found = checked(root)

    (said,) = found["cgroup"]
    ours = own_group()
    if isinstance(ours, str):
        assert (said["level"], said["message"].startswith(ours)) == ("skip", True)
    else:
        assert said["message"] == f"each backend gets a group of its own in {ours}"


def test_a_model_that_is_not_imported_yet_is_well(root: Path) -> None:
    text = manifest(model("m", source="hf://org/n-GGUF", gpus=0))
    (root / "m.json").write_bytes(text)

    code, found = checked(root)

    assert (code, failing(found)) == (0, [])
    said = "gguf/org_n-GGUF: the hub has none; it will be imported there"
    assert found["files of m"][0]["message"] == said


def test_a_damaged_catalog_is_no_matter_of_the_manifest(root: Path) -> None:
    (root / "hub/gguf/org_m/.xgen").mkdir()
    (root / "hub/gguf/org_m/.xgen/catalog.json").write_bytes(b"{")

    _, found = checked(root)

    check = found["files of m"][0]
    assert "cannot read catalog gguf/org_m/.xgen/catalog.json" in check["message"]
    assert check["next"] == "push its files again: xgen-model hub push DIR PREFIX"


def test_everything_that_is_amiss_is_found_at_once_with_a_next_step(root: Path) -> None:
    (root / "m.json").write_bytes(manifest(model("m", source="gguf/org_n", gpus=0)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        mirror = {"HF_ENDPOINT": "http://me:hush@mirror"}
        code, found = checked(root, "--listen", listen, env=mirror)

    assert code == 1
    assert failing(found) == ["files of m", "hugging face", "listen"]
    assert found["hugging face"][0]["next"] == "correct HF_ENDPOINT"
    assert "hush" not in str(found)
    assert found["files of m"][0]["next"] == "the nearest it has: gguf/org_m"
    assert "ss -ltnp" in found["listen"][0]["next"]


@pytest.mark.parametrize(
    ("flag", "value", "subject"),
    [
        ("--hub", "/nonexistent/hub", "hub"),
        ("--hub", "ftp://store", "hub"),
        ("--manifest", "/nonexistent/manifest", "manifest"),
        ("--server", "http://127.0.0.1:9", "agent"),
    ],
)
def test_a_wrong_setting_fails_in_its_own_subject(
    root: Path, flag: str, value: str, subject: str
) -> None:
    code, found = checked(root, flag, value)

    assert code == 1
    assert subject in failing(found)
    assert all(
        check["next"] for each in found.values() for check in each if check["level"] == "fail"
    )


def test_an_invalid_manifest_shows_its_errors(root: Path) -> None:
    (root / "m.json").write_bytes(manifest(model("m", typo=1)))

    code, found = checked(root)

    assert code == 1
    assert "unknown key 'typo'" in found["manifest"][0]["message"]


def test_another_node_name_than_the_remembered_one_fails(root: Path) -> None:
    (root / "data").mkdir()
    (root / "data" / "node.json").write_text('{"node": "node-b"}', encoding="utf-8")

    code, found = checked(root)

    assert (code, failing(found)) == (1, ["node"])
    assert "--rename-node node-b" in found["node"][0]["next"]


def test_a_data_folder_of_another_version_fails(root: Path) -> None:
    (root / "data").mkdir()
    (root / "data" / "version").write_text("7\n", encoding="utf-8")

    code, found = checked(root)

    assert (code, failing(found)) == (1, ["data folder"])


def test_what_an_agent_left_that_was_killed_is_a_warning(root: Path) -> None:
    (root / "data").mkdir()
    stale = json.dumps({"url": "http://127.0.0.1:9", "pid": 2**22})
    (root / "data" / "agent.json").write_text(stale, encoding="utf-8")

    code, found = checked(root)

    assert (code, found["agent"][0]["level"]) == (0, "warn")
    assert "start one with `xgen-model run`" in found["agent"][0]["message"]


def test_for_people_every_line_says_how_it_stands(root: Path) -> None:
    result = xgen_model("doctor", "--data-dir", root / "data", "--hub", root / "hub")

    *lines, blank, counted = result.stdout.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "skip", "warn", "fail", "→"}
    assert blank == ""
    assert counted.endswith("0 failed")
