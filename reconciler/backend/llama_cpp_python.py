"""How llama-cpp-python's server is started: argv and environment (PURE).

It answers one request at a time, has no page of health or counters, and listens only once its
model is loaded. Its list of models waits for the request that it is at, so it is asked for that
list before there are any, and never again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from reconciler.backend.arguments import Argument, as_key
from reconciler.backend.environment import environment
from reconciler.backend.inventory import Build
from reconciler.backend.launch import Launch, Probe
from reconciler.backend.llama_cpp_python_params import KV_OVERRIDES, POOLING, POOLINGS, said
from reconciler.backend.llama_devices import HIDDEN
from reconciler.backend.llama_options import HOST, need_fields, options
from reconciler.backend.llama_options import need_fit as need_fit_for_llama
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Default, Options
from reconciler.backend.questions import probe
from reconciler.backend.site import Site
from reconciler.backend.vllm_versions import parse
from reconciler.errors import Rejected
from reconciler.plan.desired import DesiredModel, ModelSpec, ModelType
from reconciler.plan.gpus import Gpu
from reconciler.plan.observed import FilesCached

SERVER = ("-I", "-u", "-m", "llama_cpp.server")
"""Python's arguments. `-I`: what lies in the working directory or in the user's own folder of
packages is not imported; it also ignores PYTHONUNBUFFERED, so that `-u` says it."""
KEY_VARIABLE = "API_KEY"
"""Every setting is also read from the environment; argv can be read by every user of the node."""
OPEN_PATH = "/docs"
"""A page that needs neither the key nor the lock that all other paths wait for."""
CONTEXT = 2048
"""The server's own default. Whole contexts are not for an engine that cannot fit them itself."""
PROJECTED_SINCE = (0, 3, 26)
"""The release with a chat format for projectors of any kind."""

_TYPES = (ModelType.LLM, ModelType.EMBEDDING)
_DEFAULTS = (
    Default("--interrupt-requests", "false", optional=True),  # or a new request ends a stream
    Default("--logits-all", "false", optional=True),  # 4 bytes for each token and word known
    Default("--no-mlock", optional=True),
    Default("--gpu-layers", "0"),
)
_NO_GPU = {**HIDDEN, "GGML_DISABLE_VULKAN": "1"}
_VARIABLES = frozenset({"host", "port", "config_file"})

_Settings = Mapping[str, tuple[str, ...]]


def need_fit(spec: ModelSpec, path: str, info: ModelInfo) -> None:
    """As of llama.cpp; that there are types which it does not serve is no fault of the files."""
    if spec.type in _TYPES:
        need_fit_for_llama(spec, path, info)


def check(
    spec: ModelSpec, root: str, info: ModelInfo, build: Build, devices: Sequence[Gpu] = ()
) -> Options:
    """What the manifest says, as arguments; raises Rejected. Starts and costs nothing."""
    if spec.type not in _TYPES:
        raise Rejected(
            f"cannot serve type {spec.type}: {_engine(build)} has no such endpoint; "
            "llama-server and xllamacpp have rerank"
        )
    need_fields(spec, devices)
    _need_no_settings(spec, build)
    context, warnings = _context(spec, info, build)
    defaults = (*_DEFAULTS, *context)
    checked = options(
        spec, info, flags=build.flags, root=root, engine=_engine(build), defaults=defaults
    )
    _settings(checked.arguments, info, build)
    return replace(checked, warnings=(*checked.warnings, *warnings))


def launch(
    model: DesiredModel,
    files: FilesCached,
    build: Build,
    info: ModelInfo,
    site: Site,
) -> Launch:
    """A whole spawn, but for the nonce. Raises Rejected for what cannot be said to it."""
    checked = check(model.spec, files.root, info, build, site.devices)
    settings = dict(_settings(checked.arguments, info, build))
    warnings = checked.warnings
    if files.mmproj is not None:
        settings.setdefault("clip_model_path", (files.mmproj,))
        if parse(build.version) >= PROJECTED_SINCE:
            settings.setdefault("chat_format", ("mtmd",))
        elif "chat_format" not in settings:
            warnings = (
                *warnings,
                f"{_engine(build)} uses its projector only with extra_args.chat_format",
            )
    return Launch(
        backend=build.id,
        argv=(
            *build.command,
            *("--model", files.path),
            *("--model_alias", model.name),
            *("--host", HOST),
            *("--port", str(site.port)),
            *(word for name, words in settings.items() for word in _words(name, words)),
        ),
        env=environment(model.spec.env, site, {KEY_VARIABLE: site.api_key, **_NO_GPU}),
        host=HOST,
        port=site.port,
        api_key=site.api_key,
        probe=_probe(model),
        warnings=warnings,
    )


def _probe(model: DesiredModel) -> Probe:
    return replace(probe(model.name, model.spec.type), health_path=OPEN_PATH)


def _context(
    spec: ModelSpec, info: ModelInfo, build: Build
) -> tuple[tuple[Default, ...], tuple[str, ...]]:
    """Ours and a warning, for what generates and does not say its own; what embeds has its context
    from the size of its one batch."""
    given = {build.flags.find(_option(key)) for key in spec.extra_args}
    if spec.type is not ModelType.LLM or build.flags.find("--ctx-size") in given:
        return (), ()
    trained = info.context_length or CONTEXT
    warning = f"context {CONTEXT} of {trained}: set ctx_size for longer texts"
    return (Default("--ctx-size", str(CONTEXT)),), (warning,) if trained > CONTEXT else ()


def _need_no_settings(spec: ModelSpec, build: Build) -> None:
    """It reads each setting from a variable of its name too, in upper or lower case."""
    for name in spec.env:
        setting = name.lower()
        if setting in _VARIABLES or build.flags.find(_option(setting)):
            raise Rejected(
                f"cannot use env.{name}: {_engine(build)} would take it for its setting "
                f"{setting}; those stand in extra_args"
            )


def _settings(arguments: Iterable[Argument], info: ModelInfo, build: Build) -> _Settings:
    """Its settings and their words; raises Rejected."""
    settings: dict[str, tuple[str, ...]] = {}
    for argument in arguments:
        key = f"extra_args.{as_key(argument.name)}"
        try:
            told = _pooling(argument, info) if argument.flag == POOLING else said(argument)
        except ValueError as exc:
            raise Rejected(f"cannot tell {_engine(build)} {key}: {exc}") from exc
        for name, words in told:
            if name in settings and name != KV_OVERRIDES:
                raise Rejected(f"cannot tell {_engine(build)} {key}: {name} is set twice")
            settings[name] = (*settings.get(name, ()), *words)
    return settings


def _pooling(argument: Argument, info: ModelInfo) -> Iterable[tuple[str, tuple[str, ...]]]:
    """By the GGUF's key for it, which llama.cpp reads whether or not the file has it."""
    (word,) = argument.values
    if word not in POOLINGS:
        raise ValueError(f"{word!r} is none of {', '.join(POOLINGS)}")
    architecture = info.architecture or "unknown"  # before the files are here, to check the rest
    return ((KV_OVERRIDES, (f"{architecture}.pooling_type=int:{POOLINGS[word]}",)),)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _words(name: str, words: Sequence[str]) -> tuple[str, ...]:
    """As one word where there is one value, which may begin with a dash."""
    return (f"--{name}={words[0]}",) if len(words) == 1 else (f"--{name}", *words)


def _engine(build: Build) -> str:
    return f"llama-cpp-python {build.version}" if build.version else "llama-cpp-python"
