"""Families of backends: those that take the same flags."""

LLAMA = "llama"
VLLM = "vllm"
_FORMATS = {"gguf": LLAMA, "safetensors": VLLM}


def backend_family(*, backend: str, weights: str, source: str, file: str | None) -> str:
    """The family that a model's `extra_args` and their defaults are written for.

    `weights` is the model's `format`. Where `backend` and it are `auto`, the source tells: what
    names no GGUF is taken for safetensors. A backend that turns out to be of the other family
    takes or refuses the flags by its own list.
    """
    if backend != "auto":
        return VLLM if backend.startswith("vllm-") else LLAMA
    if weights in _FORMATS:
        return _FORMATS[weights]
    return LLAMA if file or "gguf" in source.lower() else VLLM
