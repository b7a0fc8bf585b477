"""What both of llama.cpp's servers are told: our defaults, under the manifest's words (PURE)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

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
EMBEDDING_CONTEXT = 8192
"""At most, unless `ctx_size` says more: one batch as large as the context needs memory for it."""
EMBEDDING_CONTEXT_UNPOOLED = 2048
"""The same for a model that was made to generate: the engine also computes a score for each word
of its vocabulary (262,144 for Gemma 3) at each token of the batch, a MiB a token."""
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
    warnings: tuple[str, ...] = ()
    match spec.type:
        case ModelType.LLM:
            if info.pooling is not None:
                warnings = (f"this is a model for embeddings (pooling {info.pooling})",)
        case ModelType.EMBEDDING:
            embedding, warnings = _embedding(info, given, flags)
            ours += embedding
        case ModelType.RERANK | ModelType.TRANSCRIPTION:
            raise Rejected(f"cannot run type {spec.type} on {engine}: it is not supported yet")
        case unknown:
            assert_never(unknown)
    return Options(arguments=(*_ours(ours, given, flags), *given.arguments), warnings=warnings)


def probe(name: ModelName, model_type: ModelType) -> Probe:
    """How to ask either server whether it serves."""
    body: dict[str, object]
    match model_type:
        case ModelType.EMBEDDING:
            path, body = "/v1/embeddings", {"input": "ready?"}
        case ModelType.LLM:
            path, body = "/v1/completions", {"prompt": "ready?", "max_tokens": 1}
        case ModelType.RERANK | ModelType.TRANSCRIPTION:
            raise Rejected(f"cannot probe a model of type {model_type}: it is not supported yet")
        case unknown:
            assert_never(unknown)
    return Probe(
        health_path="/health",
        models_path="/v1/models",
        served_name=name,
        answer_path=path,
        answer_body={"model": name, **body},
        type=model_type,
    )


def _embedding(
    info: GgufInfo, given: Arguments, flags: Flags
) -> tuple[list[Default], tuple[str, ...]]:
    """A sequence must fit into one batch, or the engine refuses it: batch = ubatch = context."""
    warnings = []
    defaults = [Default("--embedding")]
    if info.pooling is None and not _names(given, flags, "--pooling"):
        defaults.append(Default("--pooling", "mean"))
        warnings.append("the GGUF names no pooling of its own, so mean is used")
    context = _given_value(given, "--ctx-size")
    most = EMBEDDING_CONTEXT_UNPOOLED if info.pooling is None else EMBEDDING_CONTEXT
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
