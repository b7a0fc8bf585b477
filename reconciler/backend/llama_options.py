"""What both of llama.cpp's servers are told: our defaults, under the manifest's words (PURE)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reconciler.backend.arguments import Argument, Arguments, translate
from reconciler.backend.flags import Flag, Flags, Takes
from reconciler.backend.gguf import GgufInfo
from reconciler.backend.launch import Counters, Probe
from reconciler.errors import Rejected
from reconciler.plan.desired import ModelSpec, ModelType
from reconciler.plan.ids import ModelName

HOST = "127.0.0.1"
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
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`arguments`: ours first, then the manifest's. `warnings`: what an operator should know."""

    arguments: tuple[Argument, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Default:
    """A flag of ours, with its value unless it is a switch; the manifest's own word replaces it.

    `optional`: left out where the build does not know the flag.
    """

    name: str
    value: str | None = None
    optional: bool = False


def options(
    spec: ModelSpec,
    info: GgufInfo,
    *,
    flags: Flags,
    root: str,
    engine: str,
    defaults: Iterable[Default] = (),
) -> Options:
    """Everything but the model, the address and the name.

    `defaults`: the builder's own. Raises Rejected for what the manifest may not or cannot say.
    """
    given = translate(spec.extra_args, flags=flags, root=root, engine=engine)
    ours = [Default("--cache-ram", str(CACHE_RAM_MIB), optional=True), *defaults]
    told, warnings = _served(spec.type).told(info, given, flags)
    ours += told
    return Options(arguments=(*_ours(ours, given, flags), *given.arguments), warnings=warnings)


def need_fit(model_type: ModelType, path: str, info: GgufInfo) -> None:
    """Raises Rejected for a file that is of another type than the manifest says."""
    if (fault := _served(model_type).fault(info)) is not None:
        raise Rejected(f"cannot serve {path} as type {model_type}: {fault}")


def probe(name: ModelName, model_type: ModelType) -> Probe:
    """How to ask either server whether it serves."""
    served = _served(model_type)
    return Probe(
        health_path="/health",
        models_path="/v1/models",
        served_name=name,
        answer_path=served.answer_path,
        answer_body={"model": name, **served.answer_body},
        type=model_type,
    )


_Told = tuple[list[Default], tuple[str, ...]]
"""Flags of ours, and warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """How models of one type are served, and asked. `fault`: why a file is of another type."""

    fault: Callable[[GgufInfo], str | None]
    told: Callable[[GgufInfo, Arguments, Flags], _Told]
    answer_path: str
    answer_body: Mapping[str, object]


def _served(model_type: ModelType) -> _Served:
    if (served := _TYPES.get(model_type)) is None:
        raise Rejected(f"cannot serve type {model_type}: it is not supported yet")
    return served


def _cannot_generate(info: GgufInfo) -> str | None:
    """llama.cpp aborts while it loads one (gpustack#2408 found out later)."""
    return None if info.causal else "it is an encoder, which generates no text"


def _cannot_embed(info: GgufInfo) -> str | None:
    """llama.cpp embeds with any model."""
    return None


def _cannot_rerank(info: GgufInfo) -> str | None:
    """Without a head llama.cpp answers with whatever number is in its place (llama.cpp#25447)."""
    return None if info.scores else "it has no classification head, so its scores mean nothing"


def _generates(info: GgufInfo, given: Arguments, flags: Flags) -> _Told:
    if info.scores:
        return [], ("this is a model for reranking",)
    if info.pooling is not None:
        return [], (f"this is a model for embeddings (pooling {info.pooling})",)
    return [], ()


def _embeds(info: GgufInfo, given: Arguments, flags: Flags) -> _Told:
    defaults, warnings = [Default("--embedding")], []
    if info.pooling not in _EMBEDDING_POOLINGS and not _names(given, flags, "--pooling"):
        defaults.append(Default("--pooling", "mean"))
        own = "no pooling of its own" if info.pooling is None else f"pooling {info.pooling}"
        warnings.append(f"the GGUF names {own}, so mean is used")
    sizes, more = _one_batch(info, given, flags)
    return defaults + sizes, (*warnings, *more)


def _reranks(info: GgufInfo, given: Arguments, flags: Flags) -> _Told:
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
        answer_path="/v1/completions",
        answer_body={"prompt": "ready?", "max_tokens": 1},
    ),
    ModelType.EMBEDDING: _Served(
        fault=_cannot_embed,
        told=_embeds,
        answer_path="/v1/embeddings",
        answer_body={"input": "ready?"},
    ),
    ModelType.RERANK: _Served(
        fault=_cannot_rerank,
        told=_reranks,
        answer_path="/v1/rerank",
        answer_body={"query": "ready?", "documents": ["ready", "not yet"]},
    ),
}


def _one_batch(info: GgufInfo, given: Arguments, flags: Flags) -> _Told:
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


def _ours(defaults: Iterable[Default], given: Arguments, flags: Flags) -> Iterable[Argument]:
    said = set(given.named)
    for default in defaults:
        flag = flags.find(default.name)
        if flag is None and default.optional:
            continue
        flag = flag or Flag(names=(default.name,), takes=Takes.UNKNOWN)
        if flag in said:
            continue
        said.add(flag)
        values = () if default.value is None else (default.value,)
        yield Argument(flag=flag, name=default.name, values=values)


def _names(given: Arguments, flags: Flags, name: str) -> bool:
    flag = flags.find(name)
    return any(flag == one or name in one.names for one in given.named)


def _given_value(given: Arguments, name: str) -> str | None:
    for argument in given.arguments:
        if name in argument.flag.names:
            return argument.values[0] if argument.values else None
    return None
