"""How llama.cpp's own server is started out of the xllamacpp wheel, in a child (PURE).

argv ends with one JSON text, which `child` reads:
{"fields": {"n_ctx": 512}, "members": {"pooling_type": ["llama_pooling_type", "…_MEAN"]},
 "bits": {"sampling.user_sampling_config": [["common_params_sampling_config", "…_TEMP"]]},
 "texts": {"chat_template": "/models/x/template.jinja"}}
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reconciler.backend.arguments import Argument, as_key
from reconciler.backend.environment import environment
from reconciler.backend.inventory import Build
from reconciler.backend.launch import Launch
from reconciler.backend.llama_devices import HIDDEN
from reconciler.backend.llama_options import COUNTERS, HOST, KEY_VARIABLE, need_fields, options
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Default, Options
from reconciler.backend.questions import probe
from reconciler.backend.site import Site
from reconciler.backend.xllamacpp_params import (
    BY_FLAG,
    FLAGS,
    SAMPLING_BITS,
    EnumMember,
    FieldValue,
    TextFile,
)
from reconciler.errors import Rejected
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.gpus import Gpu
from reconciler.plan.observed import FilesCached

CHILD = ("-P", "-m", "reconciler.backend.child")
"""Python's arguments. `-P`: whatever lies in the working directory is not imported."""

_DEFAULTS = (
    Default("--no-ui"),
    Default("--parallel", "-1"),  # llama-server's own default: four slots that share one cache
    Default("--gpu-layers", "0"),
)


@dataclass(slots=True)
class _Config:
    fields: dict[str, object] = field(default_factory=dict)
    members: dict[str, tuple[str, str]] = field(default_factory=dict)
    bits: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: FieldValue) -> None:
        match value:
            case EnumMember() if name == SAMPLING_BITS:
                self.bits.setdefault(name, []).append((value.type, value.member))
            case EnumMember():
                self.members[name] = (value.type, value.member)
            case TextFile():
                self.texts[name] = value.path
            case dict():
                before = self.fields.get(name)
                self.fields[name] = {**before, **value} if isinstance(before, dict) else value
            case _:
                self.fields[name] = value


def check(
    spec: ModelSpec, root: str, info: ModelInfo, build: Build, devices: Sequence[Gpu] = ()
) -> Options:
    """What the manifest says, as arguments; raises Rejected. Starts and costs nothing."""
    need_fields(spec, devices)
    checked = options(spec, info, flags=FLAGS, root=root, engine=_engine(build), defaults=_DEFAULTS)
    _translated(checked.arguments, build)
    return checked


def launch(
    model: DesiredModel,
    files: FilesCached,
    build: Build,
    info: ModelInfo,
    site: Site,
) -> Launch:
    """A whole spawn, but for the nonce. Raises Rejected for what cannot be translated."""
    checked = check(model.spec, files.root, info, build)
    config = _translated(checked.arguments, build)
    config.fields |= {
        "model.path": files.path,
        "hostnames": [HOST],
        "port": site.port,
        "model_alias": [model.name],
        "endpoint_metrics": True,
        "offline": True,
    }
    if files.mmproj:
        config.fields |= {"mmproj.path": files.mmproj, "mmproj_use_gpu": False}
    said = {
        "fields": config.fields,
        "members": config.members,
        "bits": config.bits,
        "texts": config.texts,
    }
    return Launch(
        backend=build.id,
        argv=(*build.command, json.dumps(said, ensure_ascii=False, sort_keys=True)),
        env=environment(model.spec.env, site, {KEY_VARIABLE: site.api_key, **HIDDEN}),
        host=HOST,
        port=site.port,
        api_key=site.api_key,
        probe=probe(model.name, model.spec.type),
        counters=COUNTERS,
        warnings=checked.warnings,
    )


def _translated(arguments: Iterable[Argument], build: Build) -> _Config:
    config = _Config()
    for argument in arguments:
        on = argument.name not in argument.flag.negations
        word = argument.values[0] if argument.values else on
        try:
            fields = BY_FLAG[argument.flag].read(word)
        except ValueError as exc:
            key = f"extra_args.{as_key(argument.name)}"
            raise Rejected(f"cannot tell {_engine(build)} {key}: {exc}") from exc
        for name, value in fields:
            config.put(name, value)
    return config


def _engine(build: Build) -> str:
    return f"xllamacpp {build.version}" if build.version else "xllamacpp"
