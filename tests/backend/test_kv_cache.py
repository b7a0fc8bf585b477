"""What a GGUF's header tells of its cache: a figure that is sure, or none."""

import pytest

from reconciler.backend.gguf import read_header
from reconciler.backend.kv_cache import gguf_kv_bytes, gguf_windows
from reconciler.plan.windows import Windows
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


def test_of_a_gemma_one_layer_of_six_looks_back_at_all() -> None:
    info = read_header(str(gemma()))

    assert info.kv_bytes_per_token is None
    assert info.windows == Windows(
        layer_bytes=1024, full_layers=3, windowed_layers=15, window_tokens=512
    )


GPT_OSS: dict[str, str | int | float | bool] = {
    "general.architecture": "gpt-oss",
    "gpt-oss.block_count": 24,
    "gpt-oss.embedding_length": 2880,
    "gpt-oss.attention.head_count": 64,
    "gpt-oss.attention.head_count_kv": 8,
    "gpt-oss.attention.key_length": 64,
    "gpt-oss.attention.value_length": 64,
    "gpt-oss.attention.sliding_window": 128,
}


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, (12, 12)),
        ({"gpt-oss.attention.sliding_window_pattern": 4}, (6, 18)),
        ({"gpt-oss.attention.sliding_window": 0}, None),
        ({"gpt-oss.attention.causal": False}, None),
        ({"gpt-oss.block_count": 1}, None),
        ({"general.architecture": "gemma3n"}, None),
    ],
)
def test_layers_with_windows_are_counted_or_not_known(
    changes: dict[str, str | int | float | bool], layers: tuple[int, int] | None
) -> None:
    found = gguf_windows({**GPT_OSS, **changes})

    if layers is None:
        assert found is None
    else:
        full, windowed = layers
        assert found == Windows(
            layer_bytes=2048, full_layers=full, windowed_layers=windowed, window_tokens=128
        )
