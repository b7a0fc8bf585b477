"""The commands that pages tell readers to run are such as run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.helm import CHART, HELM, MISSING, ROOT, render

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

PAGES = [
    ROOT / "README.md",
    CHART / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((CHART / "scenarios").glob("*.yaml")),
]
FILE_OF_VALUES = ("-f", "--values")
SETTERS = ("--set", "--set-string")
WITHOUT_A_VALUE = (
    "--create-namespace",
    "--force-conflicts",
    "--install",
    "--reset-then-reuse-values",
    "--wait",
)
OTHERS = ("-n", "--namespace", "--timeout")


def _commands() -> Iterator[tuple[str, str]]:
    """Page and command."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for found in re.findall(r"^[#\s`]*(helm (?:upgrade|install) [^`\n]*)", text, re.MULTILINE):
            yield page.name, found


COMMANDS = list(_commands())


def _arguments(command: str) -> Iterator[str]:
    """Those that change what is rendered, for `helm template`."""
    _, _, *words = shlex.split(command, comments=True)
    rest = iter(words)
    for word in rest:
        if word in SETTERS:
            yield from (word, next(rest))
        elif word in FILE_OF_VALUES:
            yield from (word, str(_values(next(rest))))
        elif word in OTHERS:
            next(rest)
        elif word not in WITHOUT_A_VALUE:
            assert not word.startswith("-"), word


def _values(name: str) -> Path:
    """As it is seen from the repository, or from the folder of scenarios."""
    beside = CHART / "scenarios" / name
    return beside if beside.exists() else ROOT / name


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[page for page, _ in COMMANDS])
def test_an_install_that_a_page_shows_renders(page: str, command: str, tmp_path: Path) -> None:
    release, chart = [word for word in shlex.split(command)[2:5] if word != "--install"][:2]
    assert (release, "xgen-model" in chart) == ("xgen", True)
    assert len(render(*_arguments(command), home=tmp_path)) >= 4


def test_pages_show_installs() -> None:
    assert {page for page, _ in COMMANDS} >= {"kubernetes.md", "README.md", "k3s-nvidia.yaml"}


def test_what_kubernetes_md_calls_objects_is_what_they_are_called(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(daemonset|service|configmap)[/ ](xgen[-\w]*)", text))
    objects = render("--set", "workloadKind=DaemonSet", home=tmp_path)
    there = {(each["kind"].lower(), each["metadata"]["name"]) for each in objects}
    assert named
    assert named <= there


def test_every_value_that_kubernetes_md_names_is_there() -> None:
    table = (CHART / "README.md").read_text(encoding="utf-8")
    values = set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))
    tops = {each.partition(".")[0] for each in values}
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    named = {
        each
        for each in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)+)\b", text)
        if each.partition(".")[0] in tops and not each.endswith((".yaml", ".md"))
    }
    assert len(named) > 10
    assert {each for each in named if each not in values and not each.startswith("env.")} == set()
