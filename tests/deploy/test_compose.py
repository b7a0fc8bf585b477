"""The compose file: what docker would refuse, and what an operator counts on.

No docker is at hand to read it; so its own rules are held here for what the file uses.
"""

import re
from typing import Any

import pytest
import yaml

from reconciler.plan.desired import Timeouts
from tests.cli.command import xgen_model
from tests.deploy.helm import ROOT

FOLDER = ROOT / "deploy" / "compose"
AGENTS = ("cpu", "nvidia", "amd")
KEYS = {
    *("profiles", "image", "restart", "stop_grace_period", "ports", "shm_size", "ulimits"),
    *("security_opt", "cap_drop", "environment", "volumes", "secrets", "logging", "ipc", "deploy"),
    *("devices", "group_add", "command", "env_file"),
}
"""Of a service in the compose specification, as far as ours use them."""


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))


def seconds(text: str) -> float:
    minutes = re.fullmatch(r"(\d+)m", text)
    assert minutes, text
    return 60.0 * int(minutes[1])


def test_every_key_is_one_of_the_specification(compose: Any) -> None:
    assert compose.keys() == {"name", "x-agent", "services", "volumes", "secrets"}
    for service in compose["services"].values():
        assert service.keys() <= KEYS


def test_all_that_a_service_names_is_there(compose: Any) -> None:
    for service in compose["services"].values():
        named = {each["source"] for each in service["volumes"] if each["type"] == "volume"}
        assert named <= compose["volumes"].keys()
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
    wanted = {each for service in compose["services"].values() for each in service["profiles"]}
    assert wanted == {*AGENTS, "hub"}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_has_time_to_end_and_its_secrets_as_files(compose: Any, name: str) -> None:
    service, limits = compose["services"][name], Timeouts()
    assert seconds(service["stop_grace_period"]) >= limits.drain + limits.stop + limits.kill + 5
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    environment = service["environment"]
    for key in ("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"):
        assert key not in environment
        assert environment[f"{key}_FILE"].removeprefix("/run/secrets/") in compose["secrets"]
    assert "init" not in service


def test_images_are_those_that_are_built(compose: Any) -> None:
    version = re.search(
        r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert version
    for name, variant in (("cpu", "cpu"), ("nvidia", "vllm-cuda"), ("amd", "vllm-rocm")):
        image = compose["services"][name]["image"]
        shown = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", image)
        assert shown == f"xgen-model:{version[1]}-{variant}"


def test_each_setting_of_the_example_is_used() -> None:
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+):-", text))
    example = (FOLDER / "env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#?(\w+)=", example, re.MULTILINE))
    assert named == used


def test_its_manifest_is_valid() -> None:
    assert xgen_model("validate", FOLDER / "manifest").returncode == 0
