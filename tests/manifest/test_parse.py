"""Files as bytes: encodings, limits, JSON, several documents, and places."""

import json

import pytest

from reconciler.manifest.parse import MAX_PROBLEMS, ParsedFile, parse_file
from reconciler.manifest.union import union
from tests.manifest.texts import FOREIGN, manifest, model


def parse(content: bytes, name: str = "a.yaml") -> ParsedFile:
    return parse_file(name, content)


def only_problem(content: bytes, name: str = "a.yaml") -> str:
    (problem,) = parse(content, name).problems
    return str(problem)


def test_reads_a_file_with_a_byte_order_mark_and_windows_line_ends() -> None:
    text = manifest("a").replace(b"\n", b"\r\n")

    parsed = parse(b"\xef\xbb\xbf" + text)

    assert parsed.valid
    assert parsed.claims.models == {"a"}


def test_places_count_the_same_with_windows_line_ends() -> None:
    unix = b"apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nmetadata: {name: a}\nspec: 1\n"

    assert only_problem(unix) == only_problem(unix.replace(b"\n", b"\r\n"))


def test_tells_where_bytes_are_no_utf8() -> None:
    assert only_problem(b"a: 1\nb: \xff") == "a.yaml:2:4: the file is not UTF-8 text: byte 0xff"


def test_tells_utf16_apart() -> None:
    assert "not UTF-8 text" in only_problem("a: 1".encode("utf-16"))


@pytest.mark.parametrize("control", ["\0", "\x1b", "\x07"])
def test_tells_where_a_control_character_stands(control: str) -> None:
    problem = only_problem(f"a: 1\nb: x{control}\n".encode())

    assert problem == f"a.yaml:2:5: the control character U+{ord(control):04X}"


def test_refuses_more_than_a_mebibyte() -> None:
    padding = b"#" * (1024 * 1024)

    assert "too large: more than 1 MiB" in only_problem(manifest("a") + padding)


def test_takes_exactly_a_mebibyte() -> None:
    text = manifest("a") + b"\n"

    assert parse(text + b"#" * (1024 * 1024 - len(text))).valid


def test_refuses_deep_nesting_without_recursion() -> None:
    problem = only_problem(b"a: " + b"[" * 100_000)

    assert problem == "a.yaml:1:67: nested more than 64 levels deep"


def test_refuses_aliases_that_multiply() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]

    problem = only_problem("\n".join(lines).encode())

    assert problem.startswith("a.yaml:4:")
    assert "the aliases stand for too much" in problem


def test_takes_anchors_of_a_real_size() -> None:
    text = """
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {name: a}
spec:
  models:
    - {name: a, source: gguf/org_a, env: &env {OMP_NUM_THREADS: "4"}}
    - {name: b, source: gguf/org_b, env: *env}
"""
    parsed = parse(text.encode())

    (document,) = parsed.documents
    assert [entry.env for entry in document.document.spec.models] == [{"OMP_NUM_THREADS": "4"}] * 2


def test_shows_a_hundred_problems_at_most() -> None:
    parsed = parse(manifest(*[model(f"m{i}", typo=1) for i in range(300)]))

    assert len(parsed.problems) == MAX_PROBLEMS
    assert [str(each).endswith("is the last)") for each in parsed.problems[-2:]] == [False, True]


@pytest.mark.parametrize(
    "text", ["{{name: a}}: b", "a: *b", "%YAML 1.1\n---\na: 1", '"\\U99999999"']
)
def test_odd_yaml_is_a_problem(text: str) -> None:
    parsed = parse(text.encode())

    assert not parsed.valid


def test_reads_json_as_editors_write_it() -> None:
    document = json.loads(manifest(model("a", env={"EMOJI": "😀", "SLASH": "a/b"})))
    text = json.dumps(document, indent="\t").replace("a/b", "a\\/b").encode()

    parsed = parse(text, "a.json")

    assert parsed.valid
    (placed,) = parsed.documents
    assert placed.document.spec.models[0].env == {"EMOJI": "😀", "SLASH": "a/b"}


def test_reads_json_without_any_space() -> None:
    document = json.loads(manifest("a"))

    assert parse(json.dumps(document, separators=(",", ":")).encode(), "a.json").valid


def test_documents_of_other_groups_are_skipped_and_listed() -> None:
    parsed = parse(FOREIGN + b"---\n" + manifest("a") + b"\n---\n# nothing\n")

    assert parsed.valid
    assert len(parsed.documents) == 1
    (skipped,) = parsed.skipped
    assert (skipped.api_version, skipped.kind) == (
        "kustomize.config.k8s.io/v1beta1",
        "Kustomization",
    )
    assert str(skipped.place) == "a.yaml:1:1"


def test_a_syntax_error_does_not_hide_the_documents_before_it() -> None:
    parsed = parse(manifest(model("a", typo=1)) + b"\n---\na: [")

    messages = [str(problem) for problem in parsed.problems]
    assert len(messages) == 2
    assert "unknown key 'typo'" in messages[0]
    assert "cannot read this as YAML" in messages[1]
    assert not parsed.complete


def test_one_mistake_does_not_hide_another_in_the_same_model() -> None:
    entry = model(
        "a", typo=1, refresh="sometimes", extra_args={"host": "x"}, env={"LD_PRELOAD": "x"}
    )

    problems = parse(manifest(entry)).problems

    assert {problem.path.removeprefix("spec.models[0].") for problem in problems} == {
        "typo",
        "refresh",
        "extra_args.host",
        "env.LD_PRELOAD",
    }


def test_a_model_is_placed_at_its_name() -> None:
    text = b"apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nmetadata: {name: x}\n"
    text += b"spec:\n  models:\n    - source: gguf/org_a\n      name: a\n"

    (document,) = parse(text).documents

    assert str(document.model_places[0]) == "a.yaml:7:13"


def test_flags_and_variables_are_placed_at_their_keys() -> None:
    text = b"""apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {name: x}
spec:
  defaults:
    extra_args: {vllm: {max-num-seqs: 4, seed: 1}}
  models:
    - name: a
      source: huggingface/org_a
      extra_args:
        trust-remote-code: true
        seed: 2
      env: {LEVEL: x}
      fallback: {source: gguf/org_a, env: {OTHER: y}}
"""
    (entry,) = union([parse(text)]).models

    assert {name: str(place) for name, place in entry.flag_places.items()} == {
        "extra_args.max_num_seqs": "a.yaml:6:25",
        "extra_args.seed": "a.yaml:12:9",
        "extra_args.trust_remote_code": "a.yaml:11:9",
        "env.LEVEL": "a.yaml:13:13",
        "fallback.env.OTHER": "a.yaml:14:44",
    }


def test_a_missing_value_is_placed_at_its_key() -> None:
    text = (
        b"apiVersion: xgen.io/v1alpha1\nkind: ModelManifest\nmetadata: {name: x}\nspec:\n\n# end\n"
    )

    assert only_problem(text).startswith("a.yaml:4:1: spec: must be a map of keys, not null")


def test_yaml_1_2_words_are_text() -> None:
    parsed = parse(manifest().replace(b"[]", b"[{name: on, source: gguf/no, aliases: [yes, y]}]"))

    assert parsed.valid
    assert parsed.claims.models == {"on"}
