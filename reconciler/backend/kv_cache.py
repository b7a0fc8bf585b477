"""How many bytes one token of one sequence takes in an engine's KV cache (PURE).

Known for the models that keep keys and values of every token in every layer, and of GGUFs where one
layer of each few does so; at 16 bits, which is the engines' default. Other windows, latent
attention, recurrent layers, shared layers and what is newer than these lists are None: a figure
would be a guess.
"""

from collections.abc import Mapping

from reconciler.backend.model_info import Windows
from reconciler.plan.desired import JsonValue

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
_PLAIN_HF = frozenset({
    "ApertusForCausalLM", "ArcticForCausalLM", "BaichuanForCausalLM", "CohereForCausalLM",
    "DbrxForCausalLM", "DeepseekForCausalLM", "Dots1ForCausalLM", "Ernie4_5ForCausalLM",
    "Ernie4_5_MoeForCausalLM", "ExaoneForCausalLM", "GemmaForCausalLM", "Glm4ForCausalLM",
    "Glm4MoeForCausalLM", "GlmForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM",
    "InternLM2ForCausalLM", "InternLM3ForCausalLM", "LlamaForCausalLM", "MistralForCausalLM",
    "MixtralForCausalLM", "NemotronForCausalLM", "Olmo2ForCausalLM", "OlmoForCausalLM",
    "OlmoeForCausalLM", "OrionForCausalLM", "Phi3ForCausalLM", "PhiForCausalLM",
    "PhiMoEForCausalLM", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM", "SeedOssForCausalLM", "SmolLM3ForCausalLM", "StableLmForCausalLM",
    "Starcoder2ForCausalLM",
})  # fmt: skip
_HALF = ("bfloat16", "float16")
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
    full = layers // period
    full_bytes, windowed_bytes = (
        _gguf_bytes(keys, layers=count or None) for count in (full, layers - full)
    )
    if full_bytes is None or windowed_bytes is None:
        return None
    return Windows(full_bytes=full_bytes, windowed_bytes=windowed_bytes, window=window)


def _gguf_bytes(keys: _Keys, *, layers: int | None) -> int | None:
    if keys.get(f"{keys.get('general.architecture')}.attention.causal") is False:
        return None
    per_head = _even(_of(keys, "embedding_length"), _of(keys, "attention.head_count"))
    return _bytes(
        layers=layers,
        heads=_of(keys, "attention.head_count_kv"),
        key=_of(keys, "attention.key_length") or per_head,
        value=_of(keys, "attention.value_length") or per_head,
    )


def _of(keys: _Keys, name: str) -> int | None:
    return _positive(keys.get(f"{keys.get('general.architecture')}.{name}"))


def hf_kv_bytes(config: Mapping[str, JsonValue]) -> int | None:
    """By a config.json. A type other than 16 bits, or a quantised cache, is None."""
    architectures = config.get("architectures")
    if not (isinstance(architectures, list) and len(architectures) == 1):
        return None
    if architectures[0] not in _PLAIN_HF or _has_window(config) or _has_own_cache_type(config):
        return None
    heads = _positive(config.get("num_attention_heads"))
    length = config.get("head_dim")
    per_head = (
        _even(_positive(config.get("hidden_size")), heads) if length is None else _positive(length)
    )
    return _bytes(
        layers=_positive(config.get("num_hidden_layers")),
        heads=hf_kv_heads(config),
        key=per_head,
        value=per_head,
    )


def hf_kv_heads(config: Mapping[str, JsonValue]) -> int | None:
    """On so many heads keys and values are spread, by a config.json."""
    named = "num_key_value_heads" if "num_key_value_heads" in config else "num_attention_heads"
    return _positive(config.get(named))


def _has_window(config: Mapping[str, JsonValue]) -> bool:
    layers = config.get("layer_types")
    if layers is not None and layers != ["full_attention"] * len(
        layers if isinstance(layers, list) else []
    ):
        return True
    return bool(config.get("sliding_window")) and config.get("use_sliding_window") is not False


def _has_own_cache_type(config: Mapping[str, JsonValue]) -> bool:
    written = config.get("torch_dtype", config.get("dtype"))
    if written not in _HALF:
        return True
    quantised = config.get("quantization_config")
    return isinstance(quantised, dict) and any(
        quantised.get(key) for key in ("kv_cache_scheme", "kv_cache_quant_algo")
    )


def _bytes(
    *, layers: int | None, heads: int | None, key: int | None, value: int | None
) -> int | None:
    if layers is None or heads is None or key is None or value is None:
        return None
    found = layers * heads * (key + value) * _BYTES
    return found if found <= _MOST else None


def _even(whole: int | None, parts: int | None) -> int | None:
    return whole // parts if whole and parts and whole % parts == 0 else None


def _positive(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value > 0 else None
