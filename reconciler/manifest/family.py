"""Families of backends: those that take the same flags."""

LLAMA = "llama"
VLLM = "vllm"
ENGINES = {LLAMA: "llama.cpp", VLLM: "vLLM"}
"""What each family is, in words."""
OTHER = {LLAMA: VLLM, VLLM: LLAMA}
FORMATS = {LLAMA: "gguf", VLLM: "safetensors"}
"""What each family runs."""
_FAMILIES = {weights: family for family, weights in FORMATS.items()}


def backend_family(*, backend: str, weights: str, source: str, file: str | None) -> str:
    """The family that a model's `extra_args` and their defaults are written for.

    `weights` is the model's `format`. Where `backend` and it are `auto`, the source tells: what
    names no GGUF is taken for safetensors. A backend that turns out to be of the other family
    takes or refuses the flags by its own list.
    """
    if backend != "auto":
        return VLLM if backend.startswith("vllm-") else LLAMA
    if weights in _FAMILIES:
        return _FAMILIES[weights]
    return LLAMA if file or "gguf" in source.lower() else VLLM


def is_guess(*, backend: str, weights: str, source: str, file: str | None) -> bool:
    """Whether its files may turn out to be for the other family."""
    told = backend != "auto" or weights in _FAMILIES
    return not (told or file or source.endswith(".gguf"))
