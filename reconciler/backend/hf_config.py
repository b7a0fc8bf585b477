"""What a config.json tells of a model's cache and context, as vLLM reads it (PURE).

Known as in `kv_cache`. What has windows and is not told apart for sure keeps every token in every
layer here: never less than what an engine wants. Figures of what sees are in its `text_config`.

Sources: transformers' configurations, whose defaults config.json leaves out, and in vllm-project/
vllm `_get_and_verify_max_len` (config/model.py), and the attention layer, which takes the model's
window where a layer has none of its own.
"""

from collections.abc import Iterator, Mapping

from reconciler.backend.kv_cache import even, positive, token_bytes
from reconciler.plan.desired import JsonValue
from reconciler.plan.windows import Windows

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
_READS_LIKE = {
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Mistral3ForConditionalGeneration": "MistralForCausalLM",
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
}
"""What sees, and the model of texts in it."""
_PERIODS = {
    "Cohere2ForCausalLM": 4,
    "Gemma2ForCausalLM": 2,
    "Gemma3ForCausalLM": 6,
    "GptOssForCausalLM": 2,
}
"""The last of each so many layers looks back at all, where the file has no list of them."""
_ONE_WINDOW = frozenset({
    "MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM", "PhiMoEForCausalLM",
    "Starcoder2ForCausalLM",
})  # fmt: skip
"""Where there is a window, all layers have it."""
_DEFAULTS: Mapping[str, Mapping[str, JsonValue]] = {
    "Gemma3ForCausalLM": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
    }
}
_SLIDING, _FULL = "sliding_attention", "full_attention"
_HALF = ("bfloat16", "float16")
_UNSAID_HALF = "GptOssForCausalLM"
"""Its files name no type: 16 bits beside weights of 4."""

_Config = Mapping[str, JsonValue]


def kv_bytes(config: _Config) -> int | None:
    """Of a token in all layers; a type other than 16 bits, or a quantised cache, is None."""
    architecture, text = _text(config)
    known = architecture in _PLAIN_HF or architecture in _PERIODS
    if not known or _has_own_cache_type(config, text) or windows(config) is not None:
        return None
    return _layers_bytes(text, _layers(text))


def windows(config: _Config) -> Windows | None:
    """The same for what is known to have windows."""
    architecture, text = _text(config)
    window, layers = positive(text.get("sliding_window")), _layers(text)
    if window is None or layers is None or _has_own_cache_type(config, text):
        return None
    full = _full_layers(architecture, text, layers)
    each = _layers_bytes(text, 1)
    if full is None or full >= layers or each is None or _layers_bytes(text, layers) is None:
        return None
    return Windows(
        layer_bytes=each,
        full_layers=full,
        windowed_layers=layers - full,
        window_tokens=window,
    )


def kv_heads(config: _Config) -> int | None:
    """On so many heads keys and values are spread."""
    return _kv_heads(_text(config)[1])


def context_length(config: _Config) -> int | None:
    """Stretched contexts are None where engines differ in what they make of them."""
    architecture, text = _text(config)
    lengths = (positive(text.get(key)) for key in ("max_position_embeddings", "n_positions"))
    length = next((each for each in lengths if each is not None), None)
    if architecture == "Gemma3ForCausalLM":  # its length is written as it is stretched
        return length
    return length if all(_is_kept(each, length) for each in _scalings(text)) else None


def _scalings(text: _Config) -> Iterator[_Config]:
    """One, or one for each kind of layers."""
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    if isinstance(scaling, dict):
        nested = [each for each in scaling.values() if isinstance(each, dict)]
        yield from nested or [scaling]


def _is_kept(scaling: _Config, length: int | None) -> bool:
    """Whether the length that is written is the one that all engines come to."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in ("default", "llama3"):
        return True
    first, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
    return (
        kind == "yarn"
        and isinstance(first, int)
        and isinstance(factor, int | float)
        and first * factor == length
    )


def _text(config: _Config) -> tuple[str | None, _Config]:
    """Whose figures count: the architecture, and where they are written."""
    named = config.get("architectures")
    if not (isinstance(named, list) and len(named) == 1 and isinstance(named[0], str)):
        return None, config
    inner = config.get("text_config")
    architecture = _READS_LIKE.get(named[0])
    text = inner if architecture is not None and isinstance(inner, dict) else config
    architecture = architecture or named[0]
    return architecture, {**_DEFAULTS.get(architecture, {}), **text}


def _full_layers(architecture: str | None, text: _Config, layers: int) -> int | None:
    """How many look back at all. None: it is not sure, or all do."""
    if text.get("use_sliding_window") is False:
        return None
    period = _PERIODS.get(architecture or "")
    kinds = text.get("layer_types")
    if kinds is None and period is not None:
        patterns = (text.get(f"{dash}sliding_window_pattern") for dash in ("", "_"))
        written = next((each for each in patterns if each is not None), period)
        found = positive(written)
        return None if found is None else layers // found
    if kinds is None and architecture in _ONE_WINDOW:
        return 0
    if period is None or not isinstance(kinds, list) or len(kinds) != layers:
        return None
    return kinds.count(_FULL) if all(kind in (_FULL, _SLIDING) for kind in kinds) else None


def _has_own_cache_type(config: _Config, text: _Config) -> bool:
    names = ("torch_dtype", "dtype")
    sayings = [each[name] for each in (config, text) for name in names if name in each]
    unsaid = not sayings and config.get("architectures") == [_UNSAID_HALF]
    if not unsaid and (not sayings or sayings[0] not in _HALF):
        return True
    quantised = config.get("quantization_config")
    return isinstance(quantised, dict) and any(
        quantised.get(key) for key in ("kv_cache_scheme", "kv_cache_quant_algo")
    )


def _layers(text: _Config) -> int | None:
    return positive(text.get("num_hidden_layers"))


def _layers_bytes(text: _Config, layers: int | None) -> int | None:
    heads = positive(text.get("num_attention_heads"))
    length = text.get("head_dim")
    per_head = (
        even(positive(text.get("hidden_size")), heads) if length is None else positive(length)
    )
    return token_bytes(layers=layers, heads=_kv_heads(text), key=per_head, value=per_head)


def _kv_heads(text: _Config) -> int | None:
    named = "num_key_value_heads" if "num_key_value_heads" in text else "num_attention_heads"
    return positive(text.get(named))
