import pytest

from reconciler.cache.address import HubAddress, LocalAddress, parse_source
from reconciler.errors import Rejected
from reconciler.plan.desired import Format
from reconciler.plan.repository import parse_repository


def test_names_a_prefix_a_file_in_it_or_a_path() -> None:
    assert parse_source("gguf/a_x") == HubAddress(prefix="gguf/a_x")
    assert parse_source("huggingface/a_x@v1") == HubAddress(prefix="huggingface/a_x@v1")
    assert parse_source("gguf/a_x", "q4.gguf") == HubAddress(prefix="gguf/a_x", file="q4.gguf")
    assert parse_source("gguf/a_x/q/4.gguf") == HubAddress(prefix="gguf/a_x", file="q/4.gguf")
    assert parse_source("file:///models/a%20b") == LocalAddress(path="/models/a b")
    assert parse_source("file://localhost/m/x.gguf") == LocalAddress(path="/m/x.gguf")


@pytest.mark.parametrize(
    "source",
    [
        "", "gguf", "gguf/", "/gguf/a_x", "gguf//a_x", "gguf/..", "../gguf/a_x", "gguf/a_x/..",
        "gguf/a_x/../b.gguf", "gguf/a\0x", "gguf/a_x/model.safetensors", "file://host/path",
        "file:relative", "file:///nul\0", "s3://bucket/x",
    ],
)  # fmt: skip
def test_refuses_what_names_nothing_it_can_have(source: str) -> None:
    with pytest.raises(Rejected, match="cannot use source"):
        parse_source(source)


@pytest.mark.parametrize(
    ("source", "file", "format", "prefix"),
    [
        ("hf://a/x", None, Format.AUTO, "huggingface/a_x"),
        ("hf://a/x@v1", None, Format.AUTO, "huggingface/a_x@v1"),
        ("hf://a/x", "q4.gguf", Format.AUTO, "gguf/a_x"),
        ("hf://a/x", None, Format.GGUF, "gguf/a_x"),
    ],
)
def test_a_repository_is_a_prefix_that_can_be_imported(
    source: str, file: str | None, format: Format, prefix: str
) -> None:
    assert parse_source(source, file, format) == HubAddress(
        prefix=prefix, file=file, repository=parse_repository(source)
    )


@pytest.mark.parametrize("source", ["hf://a", "hf://a/x/y", "hf://"])
def test_refuses_what_is_no_repository(source: str) -> None:
    with pytest.raises(Rejected, match="cannot use repository"):
        parse_source(source)


@pytest.mark.parametrize("source", ["gguf/a_x/q4.gguf", "file:///models/q4.gguf"])
def test_refuses_two_names_for_one_file(source: str) -> None:
    with pytest.raises(Rejected, match="names one file, and `file:` another"):
        parse_source(source, "q8.gguf")
