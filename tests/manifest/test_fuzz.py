"""Whatever bytes a file holds, parsing gives problems with places and never raises."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.manifest.parse import ParsedFile, parse_file
from tests.manifest.texts import manifest, model

GOOD = b"# a comment\n" + manifest(
    model("a", aliases=["b/c"], extra_args={"ctx_size": 8192, "x": [1.5, None, {"y": True}]}),
    model("b", env={"A": "1", "B": {"from_env": "HOME"}}, timeouts={"ready": "30m"}),
    defaults={"extra_args": {"llama": {"parallel": 4}}},
    node_settings={"node-a": {"suspend": False}},
)
BLOCK = b"""
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {name: "x"}
spec:
  models:
    - name: &n a
      source: 'gguf/org_a'
      aliases: [ *n , "\\u00e9" ]
      env: {A: |
        two
        lines
      }
---
- x
...
"""
SPICE = st.sampled_from(
    b"\t \0 \xff &a *a !!int <<: ? - { [ } ] : , # ' \" \\ @ null 0x1 1e999 \xc2\x85".split(b" ")
    + b"\xef\xbb\xbf \\U99999999 \\ud83d \xe2\x80\xa8".split(b" ")
    + [b" ", b"\r", b"%YAML 1.1\n", b"---\n", b"...\n", b"|\n", b">-\n", b"9" * 5000, b"[" * 70]
)


def check(parsed: ParsedFile) -> None:
    for problem in parsed.problems:
        assert problem.place is not None
        assert problem.place.line >= 1
        assert problem.place.column >= 1
        str(problem).encode()
    if parsed.valid:
        assert parsed.complete


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes(content: bytes) -> None:
    check(parse_file("a.yaml", content))


@given(st.text(alphabet="ab:-[]{},&*!|>'\"%@`#?~<\\\n\t 019.", max_size=80))
@settings(deadline=None)
def test_any_text_of_yaml_signs(text: str) -> None:
    check(parse_file("a.yaml", text.encode()))


@given(st.sampled_from([GOOD, BLOCK]), st.data())
@settings(deadline=None)
def test_a_truncated_file(good: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(good)))

    check(parse_file("a.yaml", good[:end]))


@given(st.sampled_from([GOOD, BLOCK]), st.data())
@settings(deadline=None)
def test_a_mutated_file(good: bytes, data: st.DataObject) -> None:
    content = good
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 6))
        content = content[:start] + data.draw(SPICE) + content[start + length :]

    check(parse_file("a.yaml", content))


_KEYS = st.sampled_from(["name", "source", "env", "nodes", "gpus", "extra_args", "from_env", "x"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("a1 /:-", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["suspend", "models", "defaults", "x"]), _VALUES) | _VALUES)
@settings(deadline=None)
def test_any_values_in_a_spec(spec: object) -> None:
    header = {"apiVersion": "xgen.io/v1alpha1", "kind": "ModelManifest", "metadata": {"name": "a"}}

    check(parse_file("a.yaml", json.dumps({**header, "spec": spec}).encode()))


@given(_VALUES)
@settings(deadline=None)
def test_any_value_as_a_model(value: object) -> None:
    entry = value if isinstance(value, dict) else {"name": "a", "nodes": value, "env": value}

    check(parse_file("a.yaml", manifest(entry)))
