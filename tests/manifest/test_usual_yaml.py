"""What libyaml reads is what the thorough parser reads, to the column; and it reads the usual."""

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.manifest.usual_yaml import MAX_DEPTH, MAX_NODES, compose_usual
from reconciler.manifest.yaml_text import Composed
from reconciler.manifest.yaml_tree import compose_any
from tests.e2e.agent import REPOSITORY

USUAL = """\
# a comment
apiVersion: xgen.io/v1alpha1
spec:
  models:
    - name: a  # another
      aliases: [b, 'c', "d é"]
      extra_args: {size: 8192, on: true, of: null, url: hf://org/name, "q": 1.5}
      empty:

    - {name: b, nodes: [node-a], env: {A: {from_env: B}}}
---
- - 1
  - ~
"""
SIGNS = st.sampled_from(
    (
        *"ab:,[]{}?#'\"|>&*!%~-=.@`<\n ",
        *("- ", ": ", " #", "# c\n", "\n  ", "\n- ", "\n  - ", "\n\n", "---\n", "...\n", "\n---\n"),
        *(
            "|-\n",
            "&a ",
            "*a",
            "<<: ",
            "null",
            "0x1",
            "1e999",
            "-1",
            "9" * 20,
            "é",
            "😀",
            "http://x",
        ),
        *("a: b\n", "'k': v", "[a, b]", "{a: b}", "''"),
    )
)


def agrees(text: str) -> None:
    usual = compose_usual(text)
    if usual is not None:
        assert Composed(documents=usual, flaws=(), complete=True) == compose_any(text)


@given(st.lists(SIGNS, max_size=16).map("".join))
@settings(deadline=None, max_examples=400)
@example("---")
@example("a\n...\n\n...")
@example("['b':c]")
@example("a:\n- \n- b\n")
def test_any_text(text: str) -> None:
    agrees(text)


@given(st.data())
@settings(deadline=None, max_examples=400)
def test_a_changed_text(data: st.DataObject) -> None:
    text = USUAL
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        text = text[:start] + data.draw(SIGNS) + text[start + data.draw(st.integers(0, 4)) :]

    agrees(text)


def shipped() -> list[Path]:
    folders = (REPOSITORY / "manifests", REPOSITORY / "examples", REPOSITORY / "tests/manifest")
    return [path for folder in folders for path in sorted(folder.rglob("*.yaml"))]


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.name)
def test_every_manifest_that_we_have(path: Path) -> None:
    agrees(path.read_bytes().decode("utf-8", "replace"))


def test_what_is_usual_is_read_by_libyaml() -> None:
    assert yaml.__with_libyaml__
    assert compose_usual(USUAL) is not None
    for path in (REPOSITORY / "manifests").rglob("*.yaml"):
        assert compose_usual(path.read_text()) is not None, path


@pytest.mark.parametrize(
    "text",
    [
        *("a: &x 1", "a: *x", "a: !t 1", "a: |\n  b", "a: >\n  b", "<<: {a: 1}", "? [a]\n: b"),
        *("a: 1\na: 2", "a: .inf", "a: " + "9" * 19, '{"": 1}', "a:\t1", "a: 1\r\n", 'a: "\\n"'),
        *("%YAML 1.2\n---\na: 1", "a: [", "---", "\ufeffa: 1", "a: \ud800", "a: " + "b" * 1000),
        *("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "- a\n" * MAX_NODES),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_not_usual_is_left_to_the_thorough_parser(text: str) -> None:
    assert compose_usual(text) is None
