"""What a GGUF's header tells of its cache: a figure that is sure, or none."""

import pytest

from reconciler.backend.gguf import read_header
from reconciler.backend.kv_cache import gguf_kv_bytes
from tests.model_files import gemma

LLAMA: dict[str, str | int | float | bool] = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.embedding_length": 4096,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}


@pytest.mark.parametrize(
    ("changes", "kv"),
    [
        ({}, 131072),
        ({"llama.attention.key_length": 64, "llama.attention.value_length": 64}, 65536),
        ({"llama.attention.key_length": 64}, 98304),
        ({"llama.attention.sliding_window": 4096}, None),
        ({"llama.attention.sliding_window": 0}, 131072),
        ({"llama.attention.causal": False}, None),
        ({"llama.block_count": 0}, None),
        ({"llama.embedding_length": 4097}, None),
        ({"general.architecture": "deepseek2"}, None),
    ],
)
def test_the_cache_is_known_or_none(
    changes: dict[str, str | int | float | bool], kv: int | None
) -> None:
    assert gguf_kv_bytes({**LLAMA, **changes}) == kv


def test_heads_that_differ_by_layer_are_an_array_which_is_not_among_the_keys() -> None:
    keys = {name: value for name, value in LLAMA.items() if not name.endswith("head_count_kv")}

    assert gguf_kv_bytes(keys) is None


def test_a_model_with_windows_is_not_known() -> None:
    assert read_header(str(gemma())).kv_bytes_per_token is None
