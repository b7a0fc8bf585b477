"""Headers of safetensors and config.json: figures that are sure, or none; hostile ones refused."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.model_info import ModelInfo
from reconciler.backend.safetensors import read_model
from reconciler.errors import Rejected

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
"""Llama 3.1 8B: 32 layers, 8 heads of 128, keys and values, two bytes each: 128 KiB a token."""


def weights(*sizes: int, extra: bytes = b"", **changes: Any) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for number, size in enumerate(sizes):
        header[f"t{number}"] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({**header, **changes}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end) + extra


def model(tmp_path: Path, **files: object) -> ModelInfo:
    """`config`, `index`: JSON. Others: content of NAME.safetensors."""
    found = {}
    for name, content in {"config": LLAMA, "model": weights(3, 4), **files}.items():
        file = {"config": "config.json", "index": "model.safetensors.index.json"}.get(
            name, f"{name}.safetensors"
        )
        path = tmp_path / file
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        found[file] = str(path)
    return read_model(found)


def test_a_plain_model_is_known_in_full(tmp_path: Path) -> None:
    assert model(tmp_path) == ModelInfo(
        architecture="LlamaForCausalLM",
        deaf=True,
        dtype="bfloat16",
        weights_bytes=7,
        kv_bytes_per_token=131072,
        kv_heads=8,
        context_length=131072,
    )


@pytest.mark.parametrize(
    ("changes", "kv"),
    [
        ({"num_key_value_heads": None}, None),
        ({"head_dim": 64}, 65536),
        ({"head_dim": None}, 131072),
        ({"hidden_size": 4097}, None),
        ({"num_hidden_layers": "32"}, None),
        ({"num_hidden_layers": 10**9}, None),
        ({"num_hidden_layers": True}, None),
        ({"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}, None),
        ({"architectures": ["Gemma3ForCausalLM"], "sliding_window": 512}, None),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, None),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, 131072),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 9, "use_sliding_window": False},
         131072),
        ({"architectures": ["Qwen3ForCausalLM"], "layer_types": ["full_attention"] * 32}, 131072),
        ({"architectures": ["Qwen3ForCausalLM"], "layer_types": ["sliding_attention"] * 32},
         131072),
        ({"architectures": ["NobodyKnowsForCausalLM"]}, None),
        ({"architectures": "LlamaForCausalLM"}, None),
        ({"torch_dtype": "float32"}, None),
        ({"torch_dtype": None, "dtype": "bfloat16"}, None),
        ({"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}, None),
        ({"quantization_config": {"quant_method": "awq"}}, 131072),
    ],
)  # fmt: skip
def test_the_cache_is_known_or_none_never_a_guess(
    tmp_path: Path, changes: dict[str, Any], kv: int | None
) -> None:
    assert model(tmp_path, config={**LLAMA, **changes}).kv_bytes_per_token == kv


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, None),
        ({"rope_scaling": {"rope_type": "llama3"}}, 131072),
        ({"rope_scaling": None}, 131072),
        ({"max_position_embeddings": None, "n_positions": 1024}, 1024),
        ({"max_position_embeddings": -1}, None),
    ],
)
def test_a_stretched_context_is_not_known(
    tmp_path: Path, changes: dict[str, Any], length: int | None
) -> None:
    assert model(tmp_path, config={**LLAMA, **changes}).context_length == length


def test_weights_are_those_that_the_index_names(tmp_path: Path) -> None:
    """Mistral's repositories hold everything twice: in shards, and consolidated."""
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}

    info = model(tmp_path, one=weights(10), two=weights(20), model=weights(30), index=index)

    assert info.weights_bytes == 30


def test_a_second_copy_without_an_index_is_not_counted(tmp_path: Path) -> None:
    assert model(tmp_path, consolidated=weights(7)).weights_bytes is None


def test_an_index_that_names_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"names gone\.safetensors, which is not there"):
        model(tmp_path, index={"weight_map": {"a": "gone.safetensors"}})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "too short"),
        (b"\0" * 4096, "not a safetensors file"),
        (struct.pack("<Q", 1 << 60) + b"{}", "its header claims"),
        (struct.pack("<Q", 99_000_000) + b"{}", "cut off in its header"),
        (weights(1000)[:-1], "cut off: 999 of 1000 bytes"),
        (weights(10, extra=b"x"), "1 bytes in it are no tensor's"),
        (weights(4, t1={"dtype": "U8", "shape": [1], "data_offsets": [5, 6]}), "leave holes"),
        (weights(4, t1={"dtype": "U8", "shape": [1], "data_offsets": [2, 6]}), "overlap"),
        (weights(4, t1={"dtype": "U8", "shape": [1], "data_offsets": [4, 3]}), "overlap"),
        (weights(4, t1={"dtype": "U8", "shape": [1], "data_offsets": [0, 2**80]}), "overlap"),
        (weights(4, t1="x"), "not a safetensors file"),
        (struct.pack("<Q", 50_000) + b"[" * 50_000, "not a safetensors file"),
        (struct.pack("<Q", 200_005) + b'{"a":' + b"[" * 200_000, "not a safetensors file"),
    ],
)
def test_a_file_that_is_none_or_not_whole_is_refused(
    tmp_path: Path, content: bytes, said: str
) -> None:
    """ollama#17520: a block of zeros passes as a model."""
    with pytest.raises(Rejected, match=said):
        model(tmp_path, model=content)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000])
def test_a_config_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Rejected, match=r"cannot read .*config\.json"):
        model(tmp_path, config=content)
