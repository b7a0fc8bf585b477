"""Families of backends: those that take the same flags."""

LLAMA = "llama"
VLLM = "vllm"


def backend_family(*, backend: str, weights: str) -> str:
    """The family that a model's `extra_args` and their defaults are written for.

    `weights` is the model's `format`. Where both are `auto`, llama.cpp is meant: it is all that
    this release runs.
    """
    if backend.startswith("vllm-") or (backend == "auto" and weights == "safetensors"):
        return VLLM
    return LLAMA
