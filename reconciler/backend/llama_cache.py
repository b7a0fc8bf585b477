"""How large a cache of keys and values llama.cpp makes for a context (PURE).

KV = tokens of context × bytes a token at 16 bits (`kv_cache`) × what the cache's types take

Layers with a window keep no more than `window` tokens of each slot and one batch (`ubatch_size`),
but with `swa_full`, and in engines that know no such flag (older builds, llama-cpp-python).

All slots share one context, so `parallel` changes nothing else. A context that nobody asked for the
engine makes smaller by itself (`fit`), down to 4,096 tokens: on the CPU to what the whole machine
has, knowing nothing of containers nor of what is free; on GPUs to what is free there.

Sources: llama_kv_cache, llama_kv_cache_iswa (size_swa) and common_params_fit in ggml-org/llama.cpp.
Measured with xllamacpp 2026.10: told that Gemma 3 270M was trained with 4 Mi tokens, its context
was made 722,944 by the engine to leave a margin of 21,000 of 24,105 MiB. The process had 92 to
96 MiB of its own beside what is reckoned here: 9 MiB (a context of 512), 230 (65,536), 222 (in two
slots that share none of it), 1,152 (`swa_full`).
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
_AUTO = (None, "-1")
_AUTO_SLOTS = 4
"""Where nobody says how many, and then they share one cache. Builds that know no `fit` have one."""
_BATCH_TOKENS = 512
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
    tokens, rates = _tokens(loading), _rates(loading)
    if _has_none(loading) or tokens is None or rates is None:
        return _of(loading, tokens)
    if loading.machine_bytes is not None and fits_itself(loading):
        room = loading.machine_bytes - _margin_bytes(loading.options) - beside_bytes
        tokens = min(tokens, max(_least(loading.options), rates.most(room)))
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
    rates = _rates(loading)
    if tokens is None or rates is None:
        return Cache(tokens, None, grows)
    whole = _padded(tokens)
    return Cache(whole, rates.size_bytes(whole), grows)


def _padded(tokens: int) -> int:
    return -(-tokens // _CELLS) * _CELLS


def _has_none(loading: Loading) -> bool:
    """BERTs read a text at once: llama.cpp gives these architectures no cache."""
    return "bert" in (loading.info.architecture or "")


def _tokens(loading: Loading) -> int | None:
    """Of context, for all slots together; as the model was trained unless it is told."""
    if loading.options.value("--ctx-size") in _UNSET:
        return loading.info.context_length
    return number(loading.options, "--ctx-size")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """In bytes a token: `full` of each, `windowed` of the last `kept` ones, too."""

    full: int
    windowed: int = 0
    kept: int = 0

    def size_bytes(self, tokens: int) -> int:
        return tokens * self.full + min(tokens, self.kept) * self.windowed

    def most(self, room_bytes: int) -> int:
        """How many tokens fit."""
        few = room_bytes // (self.full + self.windowed)
        return few if few <= self.kept else (room_bytes - self.kept * self.windowed) // self.full


def _rates(loading: Loading) -> _Rates | None:
    """Keys and values are of one size in all models whose bytes a token are known."""
    full, windows = loading.info.kv_bytes_per_token, loading.info.windows
    parts = [
        _THIRTY_SECONDS.get(loading.options.value(flag) or "f16")
        for flag in ("--cache-type-k", "--cache-type-v")
    ]
    scale = sum(part for part in parts if part is not None)
    if None in parts:
        return None
    if full is not None:
        return _Rates(full=full * scale // 64)
    if windows is None:
        return None
    if _keeps_all(loading):
        return _Rates(full=(windows.full_bytes + windows.windowed_bytes) * scale // 64)
    return _Rates(
        full=windows.full_bytes * scale // 64,
        windowed=windows.windowed_bytes * scale // 64,
        kept=_kept(loading, windows.window_tokens),
    )


def _keeps_all(loading: Loading) -> bool:
    """Whether layers with a window have the whole context in the cache, too."""
    flags = loading.build.flags
    untold = flags.complete and flags.find("--swa-full") is None
    return untold or loading.options.says("--swa-full")


def _kept(loading: Loading, window: int) -> int:
    options = loading.options
    batch = number(options, "--ubatch-size") or _BATCH_TOKENS
    if options.value("--parallel") in _AUTO:
        slots = _AUTO_SLOTS if loading.build.flags.find("--fit") is not None else 1
        return _padded(window * slots + batch)
    slots = number(options, "--parallel") or 1
    if options.says("--kv-unified"):
        return _padded(window * slots + batch)
    return slots * _padded(window + batch)


def _margin_bytes(options: Options) -> int:
    """One value, or one for each device, of which the CPU is the only one here."""
    first = (options.value("--fit-target") or "").partition(",")[0]
    return (int(first) if first.isdecimal() else _FIT_MARGIN_MIB) * _MIB


def _least(options: Options) -> int:
    return number(options, "--fit-ctx") or _FIT_TOKENS
