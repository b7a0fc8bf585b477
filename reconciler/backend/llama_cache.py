"""How large a cache of keys and values llama.cpp makes for a context (PURE).

KV = tokens of context × bytes a token at 16 bits (`kv_cache`) × what the cache's types take

All slots share one context, so `parallel` does not change it. A context that nobody asked for the
engine makes smaller by itself (`fit`), down to 4,096 tokens: on the CPU to what the whole machine
has, knowing nothing of containers nor of what is free; on GPUs to what is free there.

Sources: llama_kv_cache and common_params_fit in ggml-org/llama.cpp. Measured with xllamacpp
2026.10: told that Gemma 3 270M was trained with 4 Mi tokens, its context was made 722,944 by the
engine to leave a margin of 21,000 of 24,105 MiB.
"""

from dataclasses import dataclass

from reconciler.backend.loading import Loading
from reconciler.backend.options import Options

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


@dataclass(frozen=True, slots=True)
class Cache:
    """`tokens`: in all; None: not known, or there is no cache. `grows`: that is the least that the
    engine does with."""

    tokens: int | None
    size_bytes: int | None
    grows: bool = False


def on_cpu(loading: Loading, *, beside_bytes: int) -> Cache:
    """`beside_bytes`: of everything else."""
    tokens, token_bytes = _tokens(loading), _token_bytes(loading)
    if _has_none(loading) or tokens is None or token_bytes is None:
        return _of(loading, tokens)
    if loading.machine_bytes is not None and fits_itself(loading):
        room = loading.machine_bytes - _margin_bytes(loading.options) - beside_bytes
        tokens = min(tokens, max(_least(loading.options), room // token_bytes))
    return _of(loading, tokens)


def on_gpus(loading: Loading) -> Cache:
    tokens = _tokens(loading)
    if tokens is None or _has_none(loading) or not fits_itself(loading):
        return _of(loading, tokens)
    least = min(tokens, _least(loading.options))
    return _of(loading, least, grows=least < tokens)


def number(options: Options, name: str) -> int | None:
    """None also for what is no number, or negative: that has a meaning of its own."""
    value = options.value(name)
    return int(value) if value is not None and value.isdecimal() else None


def fits_itself(loading: Loading) -> bool:
    """Whether the engine makes a context that nobody asked for smaller."""
    return knows_fit(loading) and loading.options.value("--ctx-size") in _UNSET


def knows_fit(loading: Loading) -> bool:
    flags = loading.build.flags
    knows = flags.find("--fit") is not None or not flags.complete
    return knows and loading.options.value("--fit") != "off"


def _of(loading: Loading, tokens: int | None, *, grows: bool = False) -> Cache:
    if _has_none(loading):
        return Cache(None, 0)
    token_bytes = _token_bytes(loading)
    if tokens is None or token_bytes is None:
        return Cache(tokens, None, grows)
    whole = -(-tokens // _CELLS) * _CELLS
    return Cache(whole, whole * token_bytes, grows)


def _has_none(loading: Loading) -> bool:
    """BERTs read a text at once: llama.cpp gives these architectures no cache."""
    return "bert" in (loading.info.architecture or "")


def _tokens(loading: Loading) -> int | None:
    """Of context, for all slots together; as the model was trained unless it is told."""
    if loading.options.value("--ctx-size") in _UNSET:
        return loading.info.context_length
    return number(loading.options, "--ctx-size")


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


def _margin_bytes(options: Options) -> int:
    """One value, or one for each device, of which the CPU is the only one here."""
    first = (options.value("--fit-target") or "").partition(",")[0]
    return (int(first) if first.isdecimal() else _FIT_MARGIN_MIB) * _MIB


def _least(options: Options) -> int:
    return number(options, "--fit-ctx") or _FIT_TOKENS
