"""llama-server's flags as settings of llama-cpp-python's server: the table (PURE).

Its own settings are flags as well, under their own names. Those with another name in llama-server
have both, so that a manifest means the same on every backend of the family; the numbers are those
of llama.h and ggml.h. What is in neither cannot be said to it.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.backend.arguments import Argument
from reconciler.backend.flags import Flag, Flags, Takes

KV_OVERRIDES = "kv_overrides"
POOLING = Flag(names=("--pooling",))
"""The server has no setting for it; it follows from the GGUF, one key of which can be replaced."""
POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}

_INT32 = 2**31 - 1
_ALL_LAYERS = {"all": "-1"}
_ROPE = {"none": "0", "linear": "1", "yarn": "2"}
_CACHE_TYPES = {
    "f32": "0",
    "f16": "1",
    "q4_0": "2",
    "q4_1": "3",
    "q5_0": "6",
    "q5_1": "7",
    "q8_0": "8",
    "iq4_nl": "20",
    "bf16": "30",
}
_CHAT_FORMAT = "chat_format"
_OF_THE_FILE = "chat_template."
"""Formats that a GGUF brings itself, as `chat_template.tool_use`."""
_ON_OFF = {"on": "true", "off": "false"}

Said = tuple[tuple[str, tuple[str, ...]], ...]
"""Settings, each with the words behind its flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """`settings`: those that it sets. `read`: the flag's words (or whether a switch is on) as
    these; ValueError: what is wrong with them."""

    flag: Flag
    settings: tuple[str, ...]
    read: Callable[[tuple[str, ...] | bool], Said] = field(repr=False)


def _one(
    names: str, setting: str, read: Callable[[str], str], *, takes: Takes = Takes.VALUE
) -> Parameter:
    def with_words(words: tuple[str, ...] | bool) -> Said:
        return ((setting, (read(_single(words)),)),)

    flag = Flag(names=_flags(names), takes=takes)
    return Parameter(flag=flag, settings=(setting,), read=with_words)


def _whole(
    names: str, setting: str, *, least: int = -_INT32, words: Mapping[str, str] | None = None
) -> Parameter:
    known = words or {}
    return _one(names, setting, lambda word: known.get(word) or _int(word, least))


def _number(names: str, setting: str) -> Parameter:
    return _one(names, setting, _float)


def _choice(
    names: str, setting: str, values: Mapping[str, str], *, takes: Takes = Takes.VALUE
) -> Parameter:
    def read(word: str) -> str:
        if word not in values:
            raise ValueError(f"{word!r} is none of {', '.join(values)}")
        return values[word]

    return _one(names, setting, read, takes=takes)


def _switch(names: str, setting: str) -> Parameter:
    def read(on: tuple[str, ...] | bool) -> Said:
        return ((setting, ("true" if on else "false",)),)

    negation = f"--no-{names.split()[0]}"
    flag = Flag(names=_flags(names), negations=(negation,), takes=Takes.NOTHING)
    return Parameter(flag=flag, settings=(setting,), read=read)


def _flags(names: str) -> tuple[str, ...]:
    return tuple(f"--{name}" for name in names.split())


def _single(words: tuple[str, ...] | bool) -> str:
    if isinstance(words, bool) or len(words) != 1:
        raise ValueError("it takes one value")
    return words[0]


def _int(word: str, least: int) -> str:
    try:
        number = int(word)
    except ValueError:
        raise ValueError(f"{word!r} is not a whole number") from None
    if not least <= number <= _INT32:
        raise ValueError(f"{number} is not from {least} to {_INT32}")
    return str(number)


def _float(word: str) -> str:
    try:
        float(word)
    except ValueError:
        raise ValueError(f"{word!r} is not a number") from None
    return word


def _rope_scale(word: str) -> str:
    scale = float(_float(word))
    if scale == 0:
        raise ValueError("0 is not a scale")
    return str(1.0 / scale)


def _one_slot(words: tuple[str, ...] | bool) -> Said:
    if _single(words) not in ("1", "-1"):
        raise ValueError("it answers one request at a time")
    return ()


def _overrides(words: tuple[str, ...] | bool) -> Said:
    """llama-server's KEY=TYPE:VALUE, several with commas between, which is what it takes too."""
    texts = _single(words).split(",")
    for text in texts:
        _, equals, value = text.partition("=")
        kind, colon, _ = value.partition(":")
        if not equals or not colon or kind not in ("int", "float", "bool", "str"):
            raise ValueError(f"{text!r} is not KEY=TYPE:VALUE")
        if "=" in value or value.count(":") > 1:
            raise ValueError(f"{text!r}: it can say no value with an = or a colon in it")
    return ((KV_OVERRIDES, tuple(texts)),)


PARAMETERS: tuple[Parameter, ...] = (
    # context, batches, slots
    _whole("ctx-size n-ctx", "n_ctx", least=0),
    _whole("batch-size n-batch", "n_batch", least=1),
    _whole("ubatch-size n-ubatch", "n_ubatch", least=1),
    Parameter(flag=Flag(names=("--parallel",)), settings=(), read=_one_slot),
    _choice("cache-type-k", "type_k", _CACHE_TYPES),
    _choice("cache-type-v", "type_v", _CACHE_TYPES),
    _choice("flash-attn", "flash_attn", _ON_OFF, takes=Takes.ON_OFF),
    # the model
    _switch("mmap use-mmap", "use_mmap"),
    _switch("mlock use-mlock", "use_mlock"),
    _whole("gpu-layers n-gpu-layers", "n_gpu_layers", least=-1, words=_ALL_LAYERS),
    _switch("kv-offload offload-kqv", "offload_kqv"),
    _choice("rope-scaling", "rope_scaling_type", _ROPE),
    _one("rope-scale", "rope_freq_scale", _rope_scale),
    _number("rope-freq-base", "rope_freq_base"),
    _number("rope-freq-scale", "rope_freq_scale"),
    _whole("yarn-orig-ctx", "yarn_orig_ctx", least=0),
    _number("yarn-ext-factor", "yarn_ext_factor"),
    _number("yarn-attn-factor", "yarn_attn_factor"),
    _number("yarn-beta-slow", "yarn_beta_slow"),
    _number("yarn-beta-fast", "yarn_beta_fast"),
    Parameter(
        flag=Flag(names=("--override-kv",)),
        settings=(KV_OVERRIDES,),
        read=_overrides,
    ),
    _one("lora lora-path", "lora_path", str),
    # the rest
    _whole("threads n-threads", "n_threads", least=-1),
    _whole("threads-batch n-threads-batch", "n_threads_batch", least=-1),
    _choice("numa", "numa", {**_ON_OFF, "distribute": "true"}, takes=Takes.ON_OFF),
    _whole("seed", "seed", least=-1),
    _whole("last-n-tokens-size", "last_n_tokens_size", least=0),
    _whole("cache-size", "cache_size", least=0),
    _choice("cache-type", "cache_type", {"ram": "ram", "disk": "disk"}),
    _whole("draft-model-num-pred-tokens", "draft_model_num_pred_tokens", least=1),
)
_BY_FLAG: Mapping[Flag, Parameter] = {each.flag: each for each in PARAMETERS}


def flags_of(settings: Mapping[str, str], chat_formats: Sequence[str] = ()) -> Flags:
    """Of an installed server. `settings`: names, with their types as Python writes them.
    `chat_formats`: those that it knows; none: it does not tell."""
    table = [each.flag for each in PARAMETERS if settings.keys() >= {*each.settings}]
    if KV_OVERRIDES in settings:
        table.append(POOLING)
    taken = {name for flag in table for name in flag.names}
    own = [
        Flag(
            names=(name,),
            takes=_takes(annotation),
            choices=tuple(chat_formats) if setting == _CHAT_FORMAT else (),
        )
        for setting, annotation in settings.items()
        if (name := f"--{setting.replace('_', '-')}") not in taken
    ]
    return Flags((*table, *own), True)


def said(argument: Argument) -> Said:
    """Raises ValueError for what is wrong with its words."""
    if (parameter := _BY_FLAG.get(argument.flag)) is not None:
        if argument.flag.takes is Takes.NOTHING:
            return parameter.read(argument.name not in argument.flag.negations)
        return parameter.read(argument.values)
    _need_known(argument)
    setting = argument.flag.name.removeprefix("--").replace("-", "_")
    return ((setting, argument.values or ("true",)),)


def _need_known(argument: Argument) -> None:
    """The server takes any chat format, and then fails at each chat."""
    choices = argument.flag.choices
    for word in argument.values:
        if choices and word not in choices and not word.startswith(_OF_THE_FILE):
            close = difflib.get_close_matches(word, choices, n=1)
            instead = f"did you mean {close[0]}?" if close else f"there are {', '.join(choices)}"
            raise ValueError(f"it has no {word!r}; {instead}")


def _takes(annotation: str) -> Takes:
    """As the server's own command line reads the type: the first that is not None counts."""
    text = annotation.replace("typing.", "").removeprefix("Optional[").removeprefix("Union[")
    if "dict[" in text.lower():
        return Takes.JSON
    if "list[" in text.lower():
        return Takes.SEVERAL
    return Takes.ON_OFF if text.removeprefix("<class '").startswith("bool") else Takes.VALUE
