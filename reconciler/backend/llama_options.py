"""What both of llama.cpp's servers are told: our defaults, under the manifest's words (PURE)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.backend.arguments import Arguments, Dialect, Tongue, translate
from reconciler.backend.flags import Flags
from reconciler.backend.launch import Counters
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Default, Options, with_defaults
from reconciler.backend.xllamacpp_params import WHOLE
from reconciler.errors import Rejected
from reconciler.plan.desired import ModelSpec, ModelType
from reconciler.plan.gpus import Gpu

HOST = "127.0.0.1"
KEY_VARIABLE = "LLAMA_API_KEY"
"""Of llama-server: argv can be read by every user of the node."""
DIALECT = Dialect(
    separators={"--samplers": ";"},
    repeated=frozenset({"--logit-bias", "--dry-sequence-breaker", "--reverse-prompt"}),
    maps=frozenset(
        {"--chat-template-kwargs", "--json-schema", "--ui-config", "--mcp-servers-json"}
    ),
    by_file={
        "--chat-template": "chat_template_file",
        "--grammar": "grammar_file",
        "--json-schema": "json_schema_file",
        "--ui-config": "ui_config_file",
    },
    whole=WHOLE,
)
CACHE_RAM_MIB = 512
"""The engine's own default for prompts kept in host memory is 8 GiB, for each server."""
ONE_BATCH_CONTEXT = 8192
"""At most, unless `ctx_size` says more: one batch as large as the context needs memory for it."""
ONE_BATCH_CONTEXT_CAUSAL = 2048
"""The same for what could also generate: the engine then computes a score for each word of its
vocabulary (262,144 for Gemma 3) at each token of the batch, a MiB a token."""
COUNTERS = Counters(
    metrics_path="/metrics",
    prompt_tokens="llamacpp:prompt_tokens_total",
    generated_tokens="llamacpp:tokens_predicted_total",
    steps="llamacpp:n_decode_total",
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
)


def options(
    spec: ModelSpec,
    info: ModelInfo,
    *,
    flags: Flags,
    root: str,
    engine: str,
    defaults: Iterable[Default] = (),
) -> Options:
    """Everything but the model, the address and the name.

    `defaults`: the builder's own. Raises Rejected for what the manifest may not or cannot say.
    """
    tongue = Tongue(dialect=DIALECT, flags=flags, engine=engine)
    given = translate(spec.extra_args, tongue, root)
    ours = [Default("--cache-ram", str(CACHE_RAM_MIB), optional=True), *defaults]
    told, warnings = _served(spec.type).told(info, given, flags)
    ours += told
    return Options(arguments=with_defaults(ours, given, flags), warnings=warnings)


def need_fields(spec: ModelSpec, devices: Sequence[Gpu]) -> None:
    """Raises Rejected for fields of the manifest that mean nothing here."""
    if (spec.tensor_parallel_size or 1) != 1 or spec.pipeline_parallel_size != 1:
        raise Rejected(
            "cannot use tensor_parallel_size and pipeline_parallel_size: they are vLLM's; "
            "llama.cpp spreads a model over its GPUs by itself"
        )
    if spec.gpu_memory is not None and not devices:
        raise Rejected("cannot use gpu_memory on CPU: leave it out")


def need_fit(spec: ModelSpec, path: str, info: ModelInfo) -> None:
    """Raises Rejected for a file that is of another type than the manifest says."""
    if (fault := _served(spec.type).fault(info)) is not None:
        raise Rejected(f"cannot serve {path} as type {spec.type}: {fault}")


_Told = tuple[list[Default], tuple[str, ...]]
"""Flags of ours, and warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """How models of one type are served. `fault`: why a file is of another type."""

    fault: Callable[[ModelInfo], str | None]
    told: Callable[[ModelInfo, Arguments, Flags], _Told]


def _served(model_type: ModelType) -> _Served:
    if (served := _TYPES.get(model_type)) is None:
        raise Rejected(f"cannot serve type {model_type}: it is not supported yet")
    return served


def _cannot_generate(info: ModelInfo) -> str | None:
    """llama.cpp aborts while it loads one (gpustack#2408 found out later)."""
    return None if info.causal else "it is an encoder, which generates no text"


def _cannot_embed(info: ModelInfo) -> str | None:
    """llama.cpp embeds with any model."""
    return None


def _cannot_rerank(info: ModelInfo) -> str | None:
    """Without a head llama.cpp answers with whatever number is in its place (llama.cpp#25447)."""
    return None if info.scores else "it has no classification head, so its scores mean nothing"


def _generates(info: ModelInfo, given: Arguments, flags: Flags) -> _Told:
    if info.scores:
        return [], ("this is a model for reranking",)
    if info.pooling is not None:
        return [], (f"this is a model for embeddings (pooling {info.pooling})",)
    return [], ()


def _embeds(info: ModelInfo, given: Arguments, flags: Flags) -> _Told:
    defaults, warnings = [Default("--embedding")], []
    if info.pooling not in _EMBEDDING_POOLINGS and not _names(given, flags, "--pooling"):
        defaults.append(Default("--pooling", "mean"))
        own = "no pooling of its own" if info.pooling is None else f"pooling {info.pooling}"
        warnings.append(f"the GGUF names {own}, so mean is used")
    sizes, more = _one_batch(info, given, flags)
    return defaults + sizes, (*warnings, *more)


def _reranks(info: ModelInfo, given: Arguments, flags: Flags) -> _Told:
    if _names(given, flags, "--pooling"):
        raise Rejected("cannot use extra_args.pooling: it follows from the model's `type`")
    sizes, warnings = _one_batch(info, given, flags)
    return [Default("--reranking"), *sizes], warnings


_EMBEDDING_POOLINGS = ("mean", "cls", "last")
"""With `rank` llama.cpp would send the memory behind its one score as a vector."""
_TYPES: Mapping[ModelType, _Served] = {
    ModelType.LLM: _Served(
        fault=_cannot_generate,
        told=_generates,
    ),
    ModelType.EMBEDDING: _Served(
        fault=_cannot_embed,
        told=_embeds,
    ),
    ModelType.RERANK: _Served(
        fault=_cannot_rerank,
        told=_reranks,
    ),
}


def _one_batch(info: ModelInfo, given: Arguments, flags: Flags) -> _Told:
    """A sequence must fit into one batch, or the engine refuses it: batch = ubatch = context."""
    defaults, warnings = [], []
    context = _given_value(given, "--ctx-size")
    most = ONE_BATCH_CONTEXT_CAUSAL if info.causal else ONE_BATCH_CONTEXT
    trained = info.context_length or most
    if context in (None, "0") and _names(given, flags, "--ctx-size"):
        context = str(trained)  # `0` and `null` ask for the engine's default: all of it
    elif context is None:
        context = str(min(trained, most))
        defaults.append(Default("--ctx-size", context))
        if trained > most:
            warnings.append(f"context {context} of {trained}: set ctx_size for longer texts")
    defaults += [Default("--batch-size", context), Default("--ubatch-size", context)]
    return defaults, tuple(warnings)


def _names(given: Arguments, flags: Flags, name: str) -> bool:
    flag = flags.find(name)
    return any(flag == one or name in one.names for one in given.named)


def _given_value(given: Arguments, name: str) -> str | None:
    for argument in given.arguments:
        if name in argument.flag.names:
            return argument.values[0] if argument.values else None
    return None
