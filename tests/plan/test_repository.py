"""Repositories of Hugging Face and their prefixes."""

import pytest

from reconciler.errors import Rejected
from reconciler.plan.desired import Format
from reconciler.plan.repository import Repository, parse_repository, prefix_of


@pytest.mark.parametrize(
    ("text", "name", "revision"),
    [
        ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B", None),
        ("hf://Qwen/Qwen3-4B", "Qwen/Qwen3-4B", None),
        ("hf://a/b.c_d@v1.0", "a/b.c_d", "v1.0"),
        ("a/b@refs/pr/1", "a/b", "refs/pr/1"),
    ],
)
def test_a_repository_is_a_name_and_a_revision(text: str, name: str, revision: str | None) -> None:
    assert parse_repository(text) == Repository(name=name, revision=revision)


@pytest.mark.parametrize(
    "text", ["", "gpt2", "a/b/c", "a/b@", "a/b@x y", "../b", "a/..", "a//b", "https://hf.co/a/b"]
)
def test_what_is_no_repository_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match=r"it must look like org/name or org/name@revision"):
        parse_repository(text)


@pytest.mark.parametrize(
    ("repository", "file", "format", "prefix"),
    [
        ("Qwen/Qwen3-4B", None, Format.AUTO, "huggingface/Qwen_Qwen3-4B"),
        ("Qwen/Qwen3-4B@v1", None, Format.AUTO, "huggingface/Qwen_Qwen3-4B@v1"),
        ("a/b@refs/pr/1", None, Format.AUTO, "huggingface/a_b@refs~pr~1"),
        ("Qwen/Qwen3-4B-GGUF", None, Format.AUTO, "gguf/Qwen_Qwen3-4B-GGUF"),
        ("Qwen/Qwen3-4B-GGUF", None, Format.SAFETENSORS, "huggingface/Qwen_Qwen3-4B-GGUF"),
        ("a/b", "x.gguf", Format.AUTO, "gguf/a_b"),
        ("a/b@main", None, Format.GGUF, "gguf/a_b@main"),
    ],
)
def test_its_prefix_is_known_without_asking_anybody(
    repository: str, file: str | None, format: Format, prefix: str
) -> None:
    assert prefix_of(parse_repository(repository), file=file, format=format) == prefix
