"""What a vLLM is told: the model's type, our defaults, and the manifest's words (PURE)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.backend.arguments import Argument, Dialect, Tongue, translate
from reconciler.backend.inventory import Build
from reconciler.backend.launch import Counters
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Default, Options, with_defaults
from reconciler.backend.vllm_devices import memory, need_devices, spread
from reconciler.backend.vllm_versions import REMOVED, Traits, parse
from reconciler.errors import Rejected
from reconciler.plan.desired import JsonValue, ModelSpec, ModelType
from reconciler.plan.gpus import Gpu

DIALECT = Dialect(repeated=frozenset({"--middleware"}), reads_dashes=True, parts=True, sizes=True)
COUNTERS = Counters(
    metrics_path="/metrics",
    prompt_tokens="vllm:prompt_tokens_total",
    generated_tokens="vllm:generation_tokens_total",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
)
_ONLY_HEARS = re.compile("Whisper")
_ATTENTION = "VLLM_ATTENTION_BACKEND"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """How models of one type are served. `task`: before there was `runner`."""

    task: str
    runner: tuple[Default, ...]


_TYPES: Mapping[ModelType, _Served] = {
    ModelType.LLM: _Served(task="generate", runner=(Default("--runner", "generate"),)),
    ModelType.EMBEDDING: _Served(
        task="embed", runner=(Default("--runner", "pooling"), Default("--convert", "embed"))
    ),
    ModelType.TRANSCRIPTION: _Served(
        task="transcription", runner=(Default("--runner", "generate"),)
    ),
    # Its head is what vLLM converts for: told to, it would also make one up.
    ModelType.RERANK: _Served(task="score", runner=(Default("--runner", "pooling"),)),
}


def need_fit(spec: ModelSpec, path: str, info: ModelInfo) -> None:
    """Raises Rejected for files that are of another type than the manifest says."""
    fault = None
    if spec.type is ModelType.LLM and not info.causal:
        fault = f"{info.architecture} generates no text"
    if spec.type is ModelType.LLM and _ONLY_HEARS.match(info.architecture or ""):
        fault = f"{info.architecture} writes down what it hears; say type: transcription"
    if spec.type is ModelType.TRANSCRIPTION and info.deaf and "hf_overrides" not in spec.extra_args:
        fault = f"{info.architecture} hears nothing"
    if spec.type is ModelType.RERANK and not info.scores and "hf_overrides" not in spec.extra_args:
        fault = (
            f"{info.architecture or 'it'} has no classification head; one that judges by words "
            "needs extra_args.hf_overrides"
        )
    if fault is not None:
        raise Rejected(f"cannot serve {path} as type {spec.type}: {fault}")


def options(spec: ModelSpec, root: str, build: Build, devices: Sequence[Gpu]) -> Options:
    """Everything but the model, the address and the name. Raises Rejected."""
    traits = Traits.of(build.version)
    tongue = Tongue(dialect=DIALECT, flags=build.flags, engine=name_of(build))
    need_devices(build, devices)
    if spec.type is ModelType.TRANSCRIPTION and not build.hears:
        raise Rejected(
            f"cannot serve type {spec.type}: {name_of(build)} cannot read sound; install its extra "
            "vllm[audio] in its environment, and it is noticed"
        )
    said, warnings = _today(spec.extra_args, build)
    given = translate(said, tongue, root)
    defaults = [
        *_typed(spec.type, traits),
        *spread(spec, devices),
        *memory(spec, devices, traits),
    ]
    return Options(
        arguments=with_defaults(defaults, given, build.flags),
        warnings=(*warnings, *_doubts(spec, build, traits), *_unknown(given.arguments, tongue)),
    )


def name_of(build: Build) -> str:
    return f"vLLM {build.version}" if build.version else "vLLM"


def _typed(model_type: ModelType, traits: Traits) -> tuple[Default, ...]:
    served = _TYPES[model_type]
    return (Default("--task", served.task),) if traits.task else served.runner


def _today(
    extra_args: Mapping[str, JsonValue], build: Build
) -> tuple[dict[str, JsonValue], tuple[str, ...]]:
    """What was renamed, by its new name; what is gone is refused, with what to do instead."""
    said, warnings = dict(extra_args), []
    for key, (since, instead) in REMOVED.items():
        if key in said and parse(build.version) >= since:
            raise Rejected(
                f"cannot use extra_args.{key}: {name_of(build)} has not got it: {instead}"
            )
    if "disable_log_requests" in said and Traits.of(build.version).log_requests:
        quiet = said.pop("disable_log_requests")
        said.setdefault("enable_log_requests", quiet is False)
        warnings.append(
            f"{name_of(build)} has enable_log_requests instead of disable_log_requests, and does "
            "not log requests unless it is set"
        )
    return said, tuple(warnings)


def _doubts(spec: ModelSpec, build: Build, traits: Traits) -> Iterator[str]:
    if _ATTENTION in spec.env and (fate := traits.attention_variable) is not None:
        yield f"{_ATTENTION} {fate} by {name_of(build)}: use extra_args.attention_backend"


def _unknown(arguments: Sequence[Argument], tongue: Tongue) -> Iterator[str]:
    for argument in arguments:
        if not tongue.flags.complete and tongue.flags.find(argument.name.partition(".")[0]) is None:
            yield (
                f"{argument.name} is passed on as it stands: this release has no list of the flags "
                f"of {tongue.engine}"
            )
