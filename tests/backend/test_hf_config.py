"""What the config.json of models with windows tells of their cache: what is sure, or all of it."""

from typing import Any

import pytest

from reconciler.backend.hf_config import context_length, kv_bytes, kv_heads, windows
from reconciler.plan.windows import Windows

GEMMA_2_2B: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "head_dim": 256,
    "hidden_size": 2304,
    "max_position_embeddings": 8192,
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
}
GEMMA_3_27B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "text_config": {
        "head_dim": 128,
        "hidden_size": 5376,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}
GEMMA_3_4B: dict[str, Any] = {
    **GEMMA_3_27B,
    "text_config": {"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024},
}
GPT_OSS_20B: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "head_dim": 64,
    "hidden_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "quantization_config": {"quant_method": "mxfp4"},
    "rope_scaling": {
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
    },
    "sliding_window": 128,
}
MISTRAL_7B: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"],
    "hidden_size": 4096,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
}
QWEN_2_7B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "max_position_embeddings": 131072,
    "max_window_layers": 14,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "sliding_window": 32768,
    "torch_dtype": "bfloat16",
    "use_sliding_window": True,
}


def layers(config: dict[str, Any], **changes: Any) -> tuple[int, int] | None:
    """How many look back at all, and how many do not."""
    found = windows({**config, **changes})
    return None if found is None else (found.full_layers, found.windowed_layers)


def test_figures_of_what_sees_are_those_of_its_texts() -> None:
    assert windows(GEMMA_3_27B) == Windows(
        layer_bytes=8192, full_layers=10, windowed_layers=52, window_tokens=1024
    )
    assert (kv_bytes(GEMMA_3_27B), kv_heads(GEMMA_3_27B)) == (None, 16)
    assert context_length(GEMMA_3_27B) == 131072


def test_what_a_gemma_s_file_leaves_out_is_known() -> None:
    assert windows(GEMMA_3_4B) == Windows(
        layer_bytes=4096, full_layers=5, windowed_layers=29, window_tokens=1024
    )
    assert kv_heads(GEMMA_3_4B) == 4


@pytest.mark.parametrize(
    ("config", "changes", "expected"),
    [
        (GEMMA_2_2B, {}, (13, 13)),
        (GEMMA_2_2B, {"architectures": ["Cohere2ForCausalLM"]}, (6, 20)),
        (GEMMA_2_2B, {"architectures": ["Gemma3ForCausalLM"]}, (4, 22)),
        (GEMMA_2_2B, {"sliding_window_pattern": 5}, (5, 21)),
        (GEMMA_2_2B, {"_sliding_window_pattern": 5}, (5, 21)),
        (GEMMA_2_2B, {"sliding_window_pattern": "LLLLG"}, None),
        (GEMMA_2_2B, {"sliding_window": None}, None),
        (GPT_OSS_20B, {}, (12, 12)),
        (GPT_OSS_20B, {"layer_types": ["full_attention"] * 24}, None),
        (GPT_OSS_20B, {"layer_types": ["sliding_attention"] * 23}, None),
        (GPT_OSS_20B, {"layer_types": ["chunked_attention"] * 24}, None),
        (MISTRAL_7B, {}, (0, 32)),
        (MISTRAL_7B, {"layer_types": ["sliding_attention"] * 32}, None),
        (MISTRAL_7B, {"use_sliding_window": False}, None),
        (QWEN_2_7B, {}, None),
    ],
)
def test_layers_with_windows_are_counted_where_that_is_sure(
    config: dict[str, Any], changes: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    assert layers(config, **changes) == expected


@pytest.mark.parametrize(
    ("config", "size_bytes"),
    [
        ({**QWEN_2_7B}, 28 * 2048),
        ({**MISTRAL_7B, "layer_types": ["sliding_attention"] * 32}, 32 * 4096),
        ({**GPT_OSS_20B, "layer_types": ["chunked_attention"] * 24}, 24 * 2048),
        ({**GEMMA_2_2B, "sliding_window": None}, 26 * 4096),
    ],
)
def test_where_it_is_not_sure_all_layers_keep_all_tokens(
    config: dict[str, Any], size_bytes: int
) -> None:
    """Never less than what the engine wants."""
    assert kv_bytes(config) == size_bytes


@pytest.mark.parametrize(
    "changes",
    [
        {"torch_dtype": "float32"},
        {"quantization_config": {"kv_cache_quant_algo": "FP8"}},
        {"num_key_value_heads": None},
        {"num_hidden_layers": 10**9},
        {"architectures": ["NobodyKnowsForCausalLM"]},
    ],
)
def test_what_cannot_be_known_is_no_figure(changes: dict[str, Any]) -> None:
    assert windows({**GEMMA_2_2B, **changes}) is None
    assert kv_bytes({**GEMMA_2_2B, **changes}) is None


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        ({"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}, 131072),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, None),
        ({"full_attention": {"rope_type": "linear"}, "sliding_attention": {}}, None),
        ({"full_attention": {"rope_type": "default"}, "sliding_attention": {}}, 131072),
    ],
)
def test_a_stretched_context_is_known_where_all_come_to_the_same(
    scaling: dict[str, Any], length: int | None
) -> None:
    assert context_length({**GPT_OSS_20B, "rope_scaling": scaling}) == length
