"""How many bytes one token of one sequence takes in an engine's KV cache, by a GGUF (PURE).

Known for the models that keep keys and values of every token in every layer, and where one layer of
each few does so; at 16 bits, which is the engines' default. Other windows, latent attention,
recurrent layers, shared layers and what is newer than these lists are None: a figure would be a
guess.
"""

from collections.abc import Mapping

from reconciler.plan.windows import Windows

_BYTES = 2
_MOST = 1 << 30
"""What claims more is not believed."""

_PLAIN_GGUF = frozenset({
    "apertus", "arctic", "baichuan", "bailingmoe", "bloom", "command-r", "dbrx", "deepseek",
    "dots1", "ernie4_5", "ernie4_5-moe", "exaone", "falcon", "gemma", "glm4", "gpt2", "gptneox",
    "granite", "granitemoe", "hunyuan-dense", "hunyuan-moe", "internlm2", "llama", "minicpm",
    "mpt", "nemotron", "olmo", "olmo2", "olmoe", "orion", "phi2", "phi3", "phimoe", "qwen2",
    "qwen2moe", "qwen3", "qwen3moe", "refact", "seed_oss", "smollm3", "stablelm", "starcoder",
    "starcoder2", "xverse",
})  # fmt: skip
_PERIODS = {"cohere2": 4, "gemma2": 2, "gemma3": 6, "gpt-oss": 2}
"""The last of each so many layers looks back at all: llama_hparams::set_swa_pattern, with what
load_arch_hparams of each architecture has where the header has no pattern of its own."""

_Keys = Mapping[str, str | int | float | bool]


def gguf_kv_bytes(keys: _Keys) -> int | None:
    """By a header's keys. Arrays are not among them, so heads that differ by layer are None."""
    architecture = keys.get("general.architecture")
    windowed = _of(keys, "attention.sliding_window") or _of(keys, "nextn_predict_layers")
    if architecture not in _PLAIN_GGUF or windowed:
        return None
    return _gguf_bytes(keys, layers=_of(keys, "block_count"))


def gguf_windows(keys: _Keys) -> Windows | None:
    """The same for what has windows."""
    period = _PERIODS.get(str(keys.get("general.architecture")))
    window, layers = _of(keys, "attention.sliding_window"), _of(keys, "block_count")
    if period is None or window is None or layers is None:
        return None
    period = _of(keys, "attention.sliding_window_pattern") or period
    full, each = layers // period, _gguf_bytes(keys, layers=1)
    if each is None or not 0 < full < layers or _gguf_bytes(keys, layers=layers) is None:
        return None
    return Windows(
        layer_bytes=each,
        full_layers=full,
        windowed_layers=layers - full,
        window_tokens=window,
    )


def _gguf_bytes(keys: _Keys, *, layers: int | None) -> int | None:
    if keys.get(f"{keys.get('general.architecture')}.attention.causal") is False:
        return None
    per_head = even(_of(keys, "embedding_length"), _of(keys, "attention.head_count"))
    return token_bytes(
        layers=layers,
        heads=_of(keys, "attention.head_count_kv"),
        key=_of(keys, "attention.key_length") or per_head,
        value=_of(keys, "attention.value_length") or per_head,
    )


def _of(keys: _Keys, name: str) -> int | None:
    return positive(keys.get(f"{keys.get('general.architecture')}.{name}"))


def token_bytes(
    *, layers: int | None, heads: int | None, key: int | None, value: int | None
) -> int | None:
    """None: one of them is, or it is too much to be believed."""
    if layers is None or heads is None or key is None or value is None:
        return None
    found = layers * heads * (key + value) * _BYTES
    return found if found <= _MOST else None


def even(whole: int | None, parts: int | None) -> int | None:
    return whole // parts if whole and parts and whole % parts == 0 else None


def positive(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value > 0 else None
