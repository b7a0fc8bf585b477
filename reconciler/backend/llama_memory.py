"""What both of llama.cpp's servers need of the host's memory (PURE).

weights = the files of the GGUF, and of its projector
KV      = tokens of context × bytes a token at 16 bits (`kv_cache`) × what the cache's types take
else    = the process itself, and the prompts that it keeps in memory (`cache_ram`)

All slots share one context, so `parallel` does not change it. Buffers for computing are allocated
and hardly touched: they are left out. Mapped weights are pages of their file.

Sources: llama_kv_cache, llama_context and common_fit_params in ggml-org/llama.cpp; GGUF's keys in
ggml/docs/gguf.md. Measured with xllamacpp 2026.10 and Gemma 3 270M: 99 MiB beside the weights at a
context of 512; 126 MiB more at 32,768, as its cache is larger. Told that it was trained with 4 Mi
tokens, its context was made 722,944 by the engine to leave a margin of 21,000 of 24,105 MiB.
"""

from reconciler.backend.loading import Loading
from reconciler.backend.options import Options
from reconciler.plan.desired import ModelType
from reconciler.plan.memory import Need

PROCESS_BYTES = 90 << 20
_MIB = 1 << 20
_CELLS = 256
"""A cache has a multiple of so many."""
_FIT_MARGIN_MIB = 1024
_FIT_TOKENS = 4096
"""The engine's own defaults of `fit_target` and `fit_ctx`."""
_UNSET = (None, "0")
_THIRTY_SECONDS = {
    "f32": 64,
    "f16": 32,
    "bf16": 32,
    "q8_0": 17,
    "q4_0": 9,
    "q4_1": 10,
    "iq4_nl": 9,
    "q5_0": 11,
    "q5_1": 12,
}
"""What a type of the cache takes, in 32nds of what 16 bits do."""
_MAPPED = (None, "auto", "mmap")


def need(loading: Loading) -> Need:
    """On the CPU."""
    weights = loading.files.size_bytes or None
    overhead = PROCESS_BYTES + _prompt_bytes(loading)
    tokens, cache = _cache(loading, beside_bytes=(weights or 0) + overhead)
    return Need(
        weights_bytes=weights,
        kv_cache_bytes=cache,
        overhead_bytes=overhead,
        tokens=tokens,
        mapped_bytes=(weights or 0) if _is_mapped(loading.options) else 0,
    )


def _cache(loading: Loading, *, beside_bytes: int) -> tuple[int | None, int | None]:
    """Tokens and bytes. `beside_bytes`: of everything else."""
    if "bert" in (loading.info.architecture or ""):
        return None, 0  # they read a text at once: llama.cpp gives these architectures no cache
    tokens, token_bytes = _tokens(loading), _token_bytes(loading)
    if tokens is None or token_bytes is None:
        return tokens, None
    if loading.machine_bytes is not None and _shrinks(loading):
        room = loading.machine_bytes - _margin_bytes(loading.options) - beside_bytes
        tokens = min(tokens, max(_least(loading.options), room // token_bytes))
    tokens = -(-tokens // _CELLS) * _CELLS
    return tokens, tokens * token_bytes


def _tokens(loading: Loading) -> int | None:
    """Of context, for all slots together; as the model was trained unless it is told."""
    if loading.options.value("--ctx-size") in _UNSET:
        return loading.info.context_length
    return _number(loading.options, "--ctx-size")


def _token_bytes(loading: Loading) -> int | None:
    """Keys and values are of one size in all models whose bytes a token are known."""
    full = loading.info.kv_bytes_per_token
    parts = [
        _THIRTY_SECONDS.get(loading.options.value(flag) or "f16")
        for flag in ("--cache-type-k", "--cache-type-v")
    ]
    if full is None or None in parts:
        return None
    return full * sum(part for part in parts if part is not None) // 64


def _shrinks(loading: Loading) -> bool:
    """Whether the engine makes a context that nobody asked for smaller, where even the whole
    machine has no room for it. It knows nothing of containers, nor of what is free."""
    flags = loading.build.flags
    knows = flags.find("--fit") is not None or not flags.complete
    options = loading.options
    return knows and options.value("--fit") != "off" and options.value("--ctx-size") in _UNSET


def _margin_bytes(options: Options) -> int:
    """One value, or one for each device, of which the CPU is the only one here."""
    first = (options.value("--fit-target") or "").partition(",")[0]
    return (int(first) if first.isdecimal() else _FIT_MARGIN_MIB) * _MIB


def _least(options: Options) -> int:
    return _number(options, "--fit-ctx") or _FIT_TOKENS


def _prompt_bytes(loading: Loading) -> int:
    """What is kept of prompts that were answered; only what generates does that."""
    if loading.spec.type is not ModelType.LLM:
        return 0
    return (_number(loading.options, "--cache-ram") or 0) * _MIB


def _is_mapped(options: Options) -> bool:
    other = ("--no-mmap", "--mlock", "--direct-io")
    return options.value("--load-mode") in _MAPPED and not any(map(options.says, other))


def _number(options: Options, name: str) -> int | None:
    """None also for what is no number, or negative: that has a meaning of its own."""
    value = options.value(name)
    return int(value) if value is not None and value.isdecimal() else None
