"""A catalog's JSON: what is written is read again, and what could not be trusted is refused."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import Rejected
from reconciler.hub.catalog import (
    LIMIT_BYTES,
    Catalog,
    CatalogFile,
    Facts,
    Upstream,
    digest_of,
    dump_catalog,
    object_key,
    parse_catalog,
)


def _file(path: str = "model.gguf", **more: Any) -> CatalogFile:
    fields: dict[str, Any] = {
        "path": path,
        "key": path,
        "size_bytes": 3,
        "sha256": hashlib.sha256(path.encode()).hexdigest(),
        "crc32": "0000abcd",
    }
    return CatalogFile(**{**fields, **more})


def _catalog(*files: CatalogFile) -> Catalog:
    return Catalog(
        digest=digest_of(files),
        pushed_at="2026-11-30T12:00:00Z",
        facts=Facts(format="gguf", weights_bytes=3),
        licence="apache-2.0",
        upstream=Upstream(repository="org/name", revision="abc"),
        files=files,
    )


def _json(**changes: Any) -> bytes:
    value = json.loads(dump_catalog(_catalog(_file(), _file("b/config.json"))))
    return json.dumps({**value, **changes}).encode()


def _refused(content: bytes) -> str:
    with pytest.raises(Rejected) as refused:
        parse_catalog(content, "gguf/a_b/.xgen/catalog.json")
    return str(refused.value)


def test_the_digest_is_over_sorted_lines_of_path_size_and_sha256() -> None:
    a, b = _file("a.gguf"), _file("B.json", size_bytes=7)
    lines = f"B.json\x007\x00{b.sha256}\na.gguf\x003\x00{a.sha256}\n"

    assert digest_of([a, b]) == hashlib.sha256(lines.encode()).hexdigest()
    assert digest_of([a, b]) == digest_of([b, a])


def test_the_key_of_a_file_is_no_part_of_the_digest() -> None:
    plain = _file("a.gguf")
    stored = _file("a.gguf", key=object_key(plain.sha256))

    assert digest_of([plain]) == digest_of([stored])


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/.\0"), min_size=1),
        min_size=1,
        max_size=5,
        unique=True,
    )
)
def test_what_is_written_is_read_again(names: list[str]) -> None:
    catalog = _catalog(*(_file(name) for name in sorted(names)))

    assert parse_catalog(dump_catalog(catalog), "x") == catalog


def test_fields_that_are_not_known_are_left_out() -> None:
    value = json.loads(_json(novelty={"a": [1]}))
    value["files"][0]["blake3"] = "ff"
    value["facts"]["experts"] = 8

    catalog = parse_catalog(json.dumps(value).encode(), "x")

    assert catalog == parse_catalog(_json(), "x")


def test_fields_that_may_be_missing_are_not_known() -> None:
    value = json.loads(_json(facts={}))
    del value["licence"], value["upstream"]

    catalog = parse_catalog(json.dumps(value).encode(), "x")

    assert (catalog.facts, catalog.licence, catalog.upstream) == (Facts(), None, None)


@pytest.mark.parametrize(
    "facts",
    [
        {"kv_bytes_per_token": 0},
        {"kv_heads": -1},
        {"kv_windows": {"layer_bytes": 4, "full_layers": 0, "windowed_layers": 0,
                        "window_tokens": 8}},
        {"kv_windows": {"layer_bytes": 4, "full_layers": -1, "windowed_layers": 2,
                        "window_tokens": 8}},
        {"kv_windows": {"layer_bytes": 4, "full_layers": 1, "windowed_layers": 2,
                        "window_tokens": 0}},
    ],
)  # fmt: skip
def test_figures_that_cannot_be_reckoned_with_are_refused(facts: dict[str, Any]) -> None:
    assert "a cache has no such size" in _refused(_json(facts=facts))


def test_a_newer_version_is_refused_whatever_it_holds() -> None:
    said = _refused(b'{"catalog": 2, "files": "elsewhere"}')

    assert "a newer xgen-model wrote it (version 2)" in said


def _with_file(**changes: Any) -> bytes:
    value = json.loads(_json())
    value["files"][0].update(changes)
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated"),
        (b"\0" * 512, "malformed"),
        (_json()[:200], "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"catalog": 1}', "missing required field"),
        (b'{"catalog": "1"}', "Expected `int`"),
        (b"[" * 100_000, ""),
        (_json(catalog=0), "no version 0"),
        (_json(files=[]), "names no file"),
        (_json(digest="0" * 64), "its digest is not that of its files"),
        (_with_file(size_bytes=4), "its digest is not that of its files"),
        (_with_file(size_bytes="3"), "Expected `int`"),
        (_with_file(size_bytes=3.5), "Expected `int`"),
        (_with_file(size_bytes=-1), "negative"),
        (_with_file(size_bytes=True), "Expected `int`"),
        (_with_file(sha256="F" * 64), "its digests are none"),
        (_with_file(sha256="../x"), "its digests are none"),
        (_with_file(crc32="abc"), "its digests are none"),
        (_with_file(key="../other_model/model.gguf"), "is none of its own"),
        (_with_file(key=".xgen/objects/" + "0" * 64), "is none of its own"),
        (_with_file(path="../model.gguf"), "no path of a model's file"),
        (_with_file(path="/etc/passwd"), "no path of a model's file"),
        (_with_file(path="a//b"), "no path of a model's file"),
        (_with_file(path=".xgen/catalog.json"), "no path of a model's file"),
        (_with_file(key=".xgen/catalog.json"), "is none of its own"),
        (_with_file(key="b//config.json"), "is none of its own"),
        (_with_file(key="b/config.json"), "two contents have one key"),
        (_with_file(path="b/config.json"), "names a path twice"),
        (_json(files=[json.loads(_json())["files"][0]] * 2), "names a path twice"),
    ],
)
def test_what_cannot_be_trusted_is_refused(content: bytes, said: str) -> None:
    refusal = _refused(content)

    assert refusal.startswith("cannot read catalog gguf/a_b/.xgen/catalog.json: it is damaged: ")
    assert said in refusal


def test_a_file_may_lie_where_one_with_its_content_was_before() -> None:
    """As a push leaves a file that was renamed; older releases wrote it, too, and refused it."""
    renamed = _catalog(_file("new.gguf", key="old.gguf"))

    assert parse_catalog(dump_catalog(renamed), "x") == renamed


def test_a_huge_catalog_is_not_even_parsed() -> None:
    assert "larger than 32 MiB" in _refused(b" " * (LIMIT_BYTES + 1))
