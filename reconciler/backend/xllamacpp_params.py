"""llama-server's flags as fields of xllamacpp's CommonParams: the table (PURE).

Names, values and side effects follow common/arg.cpp of llama.cpp; what is not here cannot be
said to xllamacpp. The agent translates before it starts anything, the child only sets fields.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.backend.flags import Flag, Flags, Takes

_INT32 = range(-(2**31), 2**31)
_CONTEXTS = range(2**31)
"""0: as the model was trained. A negative one is taken for a huge one, which no memory holds."""
_SLOTS = range(-1, 257)
"""-1: as many as the engine likes; the most is its own, beyond which it does not start."""
_SEEDS = 2**32
_REMEMBERED_TOKENS = 64


@dataclass(frozen=True, slots=True)
class EnumMember:
    """A member by name: numbers may move between versions. `type`: as xllamacpp exports it."""

    type: str
    member: str


@dataclass(frozen=True, slots=True)
class TextFile:
    """The field is the file's text, which the child reads."""

    path: str


FieldValue = bool | int | float | str | list[int] | dict[str, str] | EnumMember | TextFile
Fields = Iterable[tuple[str, FieldValue]]

SAMPLING_BITS = "sampling.user_sampling_config"
"""A set of bits, given as one EnumMember each: whoever sets a default of the sampling must say so,
or the GGUF's own wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """`read`: the flag's word (or whether a switch is on) as fields; ValueError: what is wrong.
    `whole`: its words are whole numbers."""

    flag: Flag
    read: Callable[[str | bool], Fields] = field(repr=False)
    whole: bool = False


def _whole(
    name: str, *fields: str, also: str = "", bit: str | None = None, within: range = _INT32
) -> Parameter:
    def read(word: str | bool) -> Fields:
        number = _int(word, within)
        return (*((one, number) for one in fields), *_bits(bit))

    return Parameter(flag=_flag(name, also), read=read, whole=True)


def _number(name: str, one: str, *, also: str = "", bit: str | None = None) -> Parameter:
    def read(word: str | bool) -> Fields:
        return ((one, _float(word)), *_bits(bit))

    return Parameter(flag=_flag(name, also), read=read)


def _switch(name: str, *fields: str, also: str = "", inverse: bool = False) -> Parameter:
    def read(on: str | bool) -> Fields:
        return tuple((one, on is not inverse) for one in fields)

    names = (name, *also.split())
    negations = tuple(f"--no-{one}" for one in names)
    flag = Flag(names=tuple(f"--{one}" for one in names), negations=negations, takes=Takes.NOTHING)
    return Parameter(flag=flag, read=read)


def _choice(
    name: str, one: str, values: Mapping[str, FieldValue], *, takes: Takes = Takes.VALUE
) -> Parameter:
    def read(word: str | bool) -> Fields:
        if not isinstance(word, str) or word not in values:
            raise ValueError(f"{word!r} is none of {', '.join(values)}")
        return ((one, values[word]),)

    return Parameter(flag=Flag(names=(f"--{name}",), takes=takes), read=read)


def _other(
    name: str, read: Callable[[str], Fields], *, also: str = "", takes: Takes = Takes.VALUE
) -> Parameter:
    def with_word(word: str | bool) -> Fields:
        return read(str(word))

    return Parameter(flag=Flag(names=_flag(name, also).names, takes=takes), read=with_word)


def _members(enum: str, prefix: str, *names: str, **renamed: str) -> dict[str, FieldValue]:
    """Words and members: `mean` is POOLING_TYPE_MEAN; `renamed` where that does not hold."""
    plain = {name: EnumMember(enum, prefix + name.upper().replace("-", "_")) for name in names}
    return {**plain, **{word: EnumMember(enum, prefix + end) for word, end in renamed.items()}}


def _flag(name: str, also: str) -> Flag:
    return Flag(names=tuple(f"--{one}" for one in (name, *also.split())))


def _bits(bit: str | None) -> Fields:
    if bit is None:
        return ()
    member = f"COMMON_PARAMS_SAMPLING_CONFIG_{bit}"
    return ((SAMPLING_BITS, EnumMember("common_params_sampling_config", member)),)


def _int(word: str | bool, within: range = _INT32) -> int:
    try:
        number = int(word)
    except ValueError:
        raise ValueError(f"{word!r} is not a whole number") from None
    if number not in within:
        raise ValueError(f"{number} is not from {within.start} to {within.stop - 1}")
    return number


def _float(word: str | bool) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{word!r} is not a number") from None


def _seed(word: str) -> Fields:
    return (("sampling.seed", _int(word, range(-1, _SEEDS)) % _SEEDS),)


def _repeat_last_n(word: str) -> Fields:
    number = _int(word)
    remembered = max(number, _REMEMBERED_TOKENS)
    last = (("sampling.penalty_last_n", number), ("sampling.n_prev", remembered))
    return (*last, *_bits("PENALTY_LAST_N"))


def _temperature(word: str) -> Fields:
    return (("sampling.temp", max(_float(word), 0.0)), *_bits("TEMP"))


def _rope_scale(word: str) -> Fields:
    scale = _float(word)
    if scale == 0:
        raise ValueError("0 is not a scale")
    return (("rope_freq_scale", 1.0 / scale),)


def _template_kwargs(word: str) -> Fields:
    try:
        given = json.loads(word)
    except json.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise ValueError("it must be a map")
    kwargs = {key: json.dumps(value, ensure_ascii=False) for key, value in given.items()}
    return (("default_template_kwargs", kwargs),)


def _reasoning(word: str) -> Fields:
    match word:
        case "auto":
            return (("enable_reasoning", -1),)
        case "on" | "off":
            thinking = {"enable_thinking": "true" if word == "on" else "false"}
            return (("enable_reasoning", int(word == "on")), ("default_template_kwargs", thinking))
        case _:
            raise ValueError(f"{word!r} is none of on, off, auto")


def _grammar(word: str) -> Fields:
    kind = EnumMember("common_grammar_type", "COMMON_GRAMMAR_TYPE_USER")
    return (("sampling.grammar.type", kind), ("sampling.grammar.grammar", word))


_ON_OFF: dict[str, FieldValue] = {"on": True, "off": False}
_CACHE_TYPES = _members(
    "ggml_type",
    "GGML_TYPE_",
    "f32",
    "f16",
    "bf16",
    "q8_0",
    "q4_0",
    "q4_1",
    "iq4_nl",
    "q5_0",
    "q5_1",
)
_ATTENTION = _members(
    "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_", "auto", on="ENABLED", off="DISABLED"
)
_POOLING = _members(
    "llama_pooling_type", "LLAMA_POOLING_TYPE_", "none", "mean", "cls", "last", "rank"
)
_ROPE = _members("llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_", "none", "linear", "yarn")
_NUMA = _members("ggml_numa_strategy", "GGML_NUMA_STRATEGY_", "distribute", "isolate", "numactl")
_REASONING = _members(
    "common_reasoning_format",
    "COMMON_REASONING_FORMAT_",
    "none",
    "auto",
    "deepseek",
    "deepseek-legacy",
)
_LOAD_MODES = {
    **_members("llama_load_mode", "LLAMA_LOAD_MODE_", "auto", "none", "mmap", "mlock"),
    "mmap+mlock": EnumMember("llama_load_mode", "LLAMA_LOAD_MODE_MMAP_MLOCK"),
    "dio": EnumMember("llama_load_mode", "LLAMA_LOAD_MODE_DIRECT_IO"),
}

_RERANKING = Parameter(
    flag=Flag(names=("--reranking", "--rerank"), takes=Takes.NOTHING),
    read=lambda on: (("embedding", True), ("pooling_type", _POOLING["rank"])),
)

PARAMETERS: tuple[Parameter, ...] = (
    # context, batches, slots
    _whole("ctx-size", "n_ctx", within=_CONTEXTS),
    _whole("batch-size", "n_batch"),
    _whole("ubatch-size", "n_ubatch"),
    _whole("parallel", "n_parallel", within=_SLOTS),
    _whole("predict", "n_predict", also="n-predict"),
    _whole("keep", "n_keep"),
    _whole("kv-unified-per-slot", "kv_unified_per_slot"),
    _whole("cache-ram", "cache_ram_mib"),
    _whole("cache-reuse", "n_cache_reuse"),
    _whole("ctx-checkpoints", "n_ctx_checkpoints", also="swa-checkpoints"),
    _whole("checkpoint-min-step", "checkpoint_min_step"),
    _switch("kv-unified", "kv_unified"),
    _switch("cont-batching", "cont_batching"),
    _switch("context-shift", "ctx_shift"),
    _switch("cache-prompt", "cache_prompt"),
    _switch("cache-idle-slots", "cache_idle_slots"),
    _switch("swa-full", "swa_full"),
    _choice("cache-type-k", "cache_type_k", _CACHE_TYPES),
    _choice("cache-type-v", "cache_type_v", _CACHE_TYPES),
    _choice("flash-attn", "flash_attn_type", _ATTENTION, takes=Takes.ON_OFF),
    # the model
    _choice("load-mode", "load_mode", _LOAD_MODES),
    _choice("fit", "fit_params", _ON_OFF, takes=Takes.ON_OFF),
    _whole("fit-ctx", "fit_params_min_ctx"),
    _whole("gpu-layers", "n_gpu_layers", also="n-gpu-layers"),
    _switch("kv-offload", "no_kv_offload", inverse=True),
    _switch("op-offload", "no_op_offload", inverse=True),
    _switch("repack", "no_extra_bufts", inverse=True),
    _switch("check-tensors", "check_tensors"),
    _switch("warmup", "warmup"),
    _choice("rope-scaling", "rope_scaling_type", _ROPE),
    _other("rope-scale", _rope_scale),
    _number("rope-freq-base", "rope_freq_base"),
    _number("rope-freq-scale", "rope_freq_scale"),
    _whole("yarn-orig-ctx", "yarn_orig_ctx"),
    _number("yarn-ext-factor", "yarn_ext_factor"),
    _number("yarn-attn-factor", "yarn_attn_factor"),
    _number("yarn-beta-slow", "yarn_beta_slow"),
    _number("yarn-beta-fast", "yarn_beta_fast"),
    _switch("mmproj-offload", "mmproj_use_gpu"),
    _whole("image-min-tokens", "image_min_tokens"),
    _whole("image-max-tokens", "image_max_tokens"),
    _whole("mtmd-batch-max-tokens", "mtmd_batch_max_tokens"),
    # threads
    _whole("threads", "cpuparams.n_threads"),
    _whole("threads-batch", "cpuparams_batch.n_threads"),
    _whole("threads-http", "n_threads_http"),
    _whole("poll", "cpuparams.poll"),
    _choice("numa", "numa", _NUMA),
    # embeddings, scores
    _switch("embedding", "embedding", also="embeddings"),
    _RERANKING,
    _choice("pooling", "pooling_type", _POOLING),
    _whole("embd-normalize", "embd_normalize"),
    # chat
    _switch("jinja", "use_jinja"),
    _other("chat-template", lambda word: (("chat_template", word),)),
    _other("chat-template-file", lambda word: (("chat_template", TextFile(word)),)),
    _other("chat-template-kwargs", _template_kwargs),
    _other("reasoning", _reasoning, takes=Takes.ON_OFF),
    _choice("reasoning-format", "reasoning_format", _REASONING),
    _whole("reasoning-budget", "sampling.reasoning_budget_tokens"),
    _switch("skip-chat-parsing", "force_pure_content_parser"),
    _switch("prefill-assistant", "prefill_assistant"),
    _switch("special", "special"),
    # sampling
    _other("seed", _seed),
    _other("temp", _temperature, also="temperature"),
    _whole("top-k", "sampling.top_k", bit="TOP_K"),
    _number("top-p", "sampling.top_p", bit="TOP_P"),
    _number("min-p", "sampling.min_p", bit="MIN_P"),
    _number("typical", "sampling.typ_p", also="typical-p"),
    _number("xtc-probability", "sampling.xtc_probability", bit="XTC_PROBABILITY"),
    _number("xtc-threshold", "sampling.xtc_threshold", bit="XTC_THRESHOLD"),
    _other("repeat-last-n", _repeat_last_n),
    _number("repeat-penalty", "sampling.penalty_repeat", bit="PENALTY_REPEAT"),
    _number("presence-penalty", "sampling.penalty_present"),
    _number("frequency-penalty", "sampling.penalty_freq"),
    _number("dry-multiplier", "sampling.dry_multiplier"),
    _number("dry-base", "sampling.dry_base"),
    _whole("dry-allowed-length", "sampling.dry_allowed_length"),
    _whole("dry-penalty-last-n", "sampling.dry_penalty_last_n"),
    _number("dynatemp-range", "sampling.dynatemp_range"),
    _number("dynatemp-exp", "sampling.dynatemp_exponent"),
    _whole("mirostat", "sampling.mirostat", bit="MIROSTAT"),
    _number("mirostat-lr", "sampling.mirostat_eta", bit="MIROSTAT_ETA"),
    _number("mirostat-ent", "sampling.mirostat_tau", bit="MIROSTAT_TAU"),
    _switch("ignore-eos", "sampling.ignore_eos"),
    _switch("perf", "no_perf", "sampling.no_perf", inverse=True),
    _other("grammar", _grammar),
    # the server
    _whole("timeout", "timeout_read", "timeout_write"),
    _whole("sse-ping-interval", "sse_ping_interval"),
    _number("slot-prompt-similarity", "slot_prompt_similarity"),
    _whole("verbosity", "verbosity", also="log-verbosity"),
    _switch("slots", "endpoint_slots"),
    _switch("ui", "ui", also="webui"),
    _switch("offline", "offline"),
)

BY_FLAG = {parameter.flag: parameter for parameter in PARAMETERS}
FLAGS = Flags(tuple(BY_FLAG), True)
WHOLE = frozenset(name for each in PARAMETERS if each.whole for name in each.flag.names)
