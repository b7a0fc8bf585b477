"""The node's policy on the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.e2e.manifests import manifest, model


@pytest.mark.parametrize(
    ("option", "name", "why"),
    [
        ("--allow-engine-arg", "host", "the agent sets it itself"),
        ("--allow-engine-arg", "served-model-name", "use name and aliases"),
        ("--allow-engine-env", "CUDA_VISIBLE_DEVICES", "use gpus or gpu_ids"),
        ("--allow-engine-arg", "lora=1", "no name of a flag"),
        ("--allow-engine-env", "a=b", "no name of a variable"),
        ("--allow-file-root", "models", "no absolute path"),
    ],
)
def test_what_no_node_can_allow_is_bad_usage(
    tmp_path: Path, option: str, name: str, why: str
) -> None:
    where = ("--manifest", tmp_path, "--data-dir", tmp_path / "data")
    done = xgen_model("run", *where, option, name)
    assert done.returncode == 64
    said = " ".join(done.stderr.replace("│", " ").split())
    assert name in said
    assert why in said


def test_doctor_judges_models_by_what_the_node_allows(tmp_path: Path) -> None:
    """Exactly as the agent that gets the same environment."""
    file = tmp_path / "models.yaml"
    file.write_text(
        manifest(model("a", backend="xllamacpp", env="{MY_OWN: x}", extra_args="{lora: '@/x'}")),
        encoding="utf-8",
    )
    where = ("--manifest", file, "--data-dir", tmp_path / "data", "--output", "json")
    refused = _engine_of_a(xgen_model("doctor", *where).stdout)
    assert refused is not None
    assert refused.endswith("--allow-engine-env MY_OWN")
    allowed = {"XGEN_ALLOW_ENGINE_ENV": "MY_OWN OTHER"}
    told = _engine_of_a(xgen_model("doctor", *where, env=allowed).stdout)
    assert told is not None
    assert "has no flag --lora" in told


def test_a_folder_for_models_in_place_that_is_not_there_is_told(tmp_path: Path) -> None:
    """It may be mounted later, so it ends nothing."""
    there, gone, file = tmp_path / "there", tmp_path / "gone", tmp_path / "file"
    there.mkdir()
    file.touch()
    roots = [word for root in (there, gone, file) for word in ("--allow-file-root", root)]
    done = xgen_model("doctor", "--data-dir", tmp_path / "data", "--output", "json", *roots)
    checks = json.loads(done.stdout)["checks"]
    found = [(each["level"], each["message"]) for each in checks if each["subject"] == "file root"]
    assert found == [
        ("ok", f"models may be used in place below {there}"),
        ("warn", f"{gone} is not there, so no model can be used in place below it"),
        ("warn", f"{file} is no folder, so no model can be used in place below it"),
    ]


def _engine_of_a(stdout: str) -> str | None:
    checks = json.loads(stdout)["checks"]
    found = [check["message"] for check in checks if check["subject"] == "engine of a"]
    return str(found[0]) if found else None


def test_the_environment_names_several_folders(tmp_path: Path) -> None:
    where = ("--manifest", tmp_path, "--data-dir", tmp_path / "data")
    done = xgen_model("run", *where, env={"XGEN_ALLOW_FILE_ROOT": f"{tmp_path}:models"})
    assert done.returncode == 64
    assert "models is no absolute path" in " ".join(done.stderr.replace("│", " ").split())
