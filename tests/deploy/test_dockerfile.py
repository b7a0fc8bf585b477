"""What the Dockerfile says, without a build: variants, how each is run, what is pulled for it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy.dockerfile import NotUnderstood, parse

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "deploy" / "image"
FILE = parse((FOLDER / "Dockerfile").read_text(encoding="utf-8"))
VARIANTS = ("cpu", "llama-cuda", "llama-vulkan", "vllm-cuda", "vllm-rocm")


def _hadolint() -> str:
    found = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("no prebuilt hadolint for this machine")
    return found


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [_hadolint(), str(FOLDER / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_there_is_a_stage_for_each_variant_and_no_other() -> None:
    bases = {name.removeprefix("base-") for name in FILE.stages if name.startswith("base-")}
    assert bases == set(VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_container_runs_the_agent_under_its_supervisor_as_nobody_special(variant: str) -> None:
    config = FILE.config("final", {"VARIANT": variant})
    assert (config.entrypoint, config.command) == (("xgen-model",), ("run",))
    assert config.user == "10001:10001"
    assert config.stop_signal == "SIGTERM"
    assert config.env["XGEN_SUPERVISE"] == "true"
    assert config.env["XGEN_LISTEN"] == "0.0.0.0:8000"
    assert config.env["XGEN_DATA_DIR"] == "/var/lib/xgen-model"
    assert config.env["XGEN_MODELS_DIR"] == "/app/models"


def test_the_agent_is_told_where_the_engine_is() -> None:
    told = {
        variant: {
            name: value
            for name, value in FILE.config("final", {"VARIANT": variant}).env.items()
            if name in ("XGEN_VLLM", "XGEN_LLAMA_SERVER")
        }
        for variant in VARIANTS
    }
    assert told == {
        "cpu": {},
        "llama-cuda": {"XGEN_LLAMA_SERVER": "/app/llama-server"},
        "llama-vulkan": {"XGEN_LLAMA_SERVER": "/app/llama-server"},
        "vllm-cuda": {"XGEN_VLLM": "/usr/local/bin/vllm"},
        "vllm-rocm": {"XGEN_VLLM": "/usr/local/bin/vllm"},
    }


def test_every_image_is_an_argument_with_a_registry_and_in_the_list() -> None:
    listed = (FOLDER / "images.txt").read_text(encoding="utf-8").splitlines()
    images = {
        FILE.base(name, {"VARIANT": variant}) for variant in VARIANTS for name in FILE.stages
    } - set(FILE.stages)
    assert sorted(images) == sorted(line for line in listed if not line.startswith("#"))
    for stage in FILE.stages.values():
        assert (
            stage.base in FILE.stages or stage.base.startswith("${") or "${VARIANT}" in stage.base
        )
    for image in images:
        assert re.fullmatch(r"(docker\.io|ghcr\.io)/[\w./-]+:[\w.-]+", image)


def test_another_registry_takes_the_place_of_each() -> None:
    mirrors = {name: f"registry.example/{name.lower()}@sha256:0" for name in FILE.arguments}
    del mirrors["VARIANT"]
    for variant in VARIANTS:
        for name in FILE.stages:
            base = FILE.base(name, {**mirrors, "VARIANT": variant})
            assert base in FILE.stages or base.startswith("registry.example/")


def test_labels_say_what_the_build_was_given() -> None:
    given = {"VERSION": "1.2.3", "REVISION": "abc", "CREATED": "2026-12-01", "SOURCE": "https://x"}
    labels = FILE.config("final", {**given, "VARIANT": "cpu"}).labels
    told = {name.rpartition(".")[2]: value for name, value in labels.items()}
    assert told == {
        "title": "xgen-model",
        "description": "Declarative GitOps reconciler for LLM serving, with its engine (cpu)",
        "licenses": "Apache-2.0",
        "version": "1.2.3",
        "revision": "abc",
        "created": "2026-12-01",
        "source": "https://x",
    }


def test_the_licence_is_that_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    labels = FILE.config("final", {}).labels
    assert labels["org.opencontainers.image.licenses"] == project["license"]


@pytest.mark.parametrize(
    "text",
    [
        "FROM x AS y\nADD a b",
        "FROM x AS y\nENTRYPOINT xgen-model run",
        "FROM x AS y\nENV A=${B:-c}",
        "FROM x",
        "RUN true",
    ],
)
def test_what_the_reader_does_not_know_is_refused(text: str) -> None:
    with pytest.raises((NotUnderstood, ValueError)):
        parse(text).config("y", {})
