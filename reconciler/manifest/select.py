"""Which models of the manifest are for one node, as the planner's desired state."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from reconciler.manifest.check_fields import (
    AudioCheck,
    CheckEntry,
    InputCheck,
    MessageCheck,
    PromptCheck,
    QueryCheck,
)
from reconciler.manifest.family import LLAMA
from reconciler.manifest.model import EnvValue, Model, SecretReference
from reconciler.manifest.problem import Problem, Severity
from reconciler.manifest.rail_fields import windows_of
from reconciler.manifest.rail_places import MODEL, NODE
from reconciler.manifest.union import Manifest, ManifestModel, family_of
from reconciler.plan.backend_ids import is_for_cpu
from reconciler.plan.checks import (
    Check,
    EmbeddingCheck,
    RerankCheck,
    TextCheck,
    TranscriptionCheck,
    file_of,
)
from reconciler.plan.desired import (
    Affinity,
    Desired,
    DesiredModel,
    Elsewhere,
    Format,
    ModelSpec,
    ModelType,
    OnFailure,
    Refresh,
    SecretRef,
    Strategy,
)
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.spec_hash import spec_hash
from reconciler.plan.suspension import Suspension

_UNPLACED = "it names no nodes: with peers that needs placement, which is not supported yet"


def select(manifest: Manifest, *, node: str, revision: str, peers: bool = False) -> Desired:
    """The desired state of `node`, sorted by name; the other models with the reason why not.

    `peers`: this node is one of a cluster; a model that names no node then waits for placement,
    which is not built yet.
    """
    here: list[DesiredModel] = []
    elsewhere: list[Elsewhere] = []
    for entry in manifest.models:
        reason = _reason_elsewhere(entry.model, node, peers)
        if reason is None:
            here.append(_desired(entry))
        else:
            elsewhere.append(_elsewhere(entry.model, reason))
    settings = manifest.node_settings.get(node)
    own_windows = settings.maintenance_windows if settings is not None else None
    suspensions = tuple(_suspensions(manifest, node, {model.name for model in here}))
    return Desired(
        node=NodeName(node),
        revision=revision,
        models=tuple(here),
        elsewhere=tuple(elsewhere),
        suspend=any(each.model is None for each in suspensions),
        suspensions=suspensions,
        stop_limits=manifest.stop_limits,
        windows=windows_of(own_windows) if own_windows is not None else manifest.windows,
        confirms=manifest.confirms,
    )


def _suspensions(manifest: Manifest, node: str, here: Collection[str]) -> Iterator[Suspension]:
    for (kind, name), place in sorted(manifest.suspends.items()):
        if kind == NODE and name in ("", node):
            yield Suspension(place=place)
        elif kind == MODEL and name in here:
            yield Suspension(model=ModelName(name), place=place)


def unplaced(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each model that would run at no node of a cluster: agents take the rest of the
    manifest, and tell of it."""
    for entry in manifest.models:
        if entry.model.nodes is None:
            message = f"{entry.model.name!r} would run at no node: {_UNPLACED}"
            yield Problem(
                place=entry.place, path="nodes", message=message, severity=Severity.WARNING
            )


def _elsewhere(model: Model, reason: str) -> Elsewhere:
    nodes = () if model.nodes is None or model.nodes == "all" else tuple(model.nodes)
    return Elsewhere(
        name=ModelName(model.name), reason=reason, aliases=tuple(model.aliases), nodes=nodes
    )


def _reason_elsewhere(model: Model, node: str, peers: bool) -> str | None:
    if model.nodes is None:
        if peers:
            return _UNPLACED
        return None
    if model.nodes == "all" or node in model.nodes:
        return None
    return f"nodes: [{', '.join(model.nodes)}]; this node is {node}"


def _desired(entry: ManifestModel) -> DesiredModel:
    model = entry.model
    checks = tuple(map(_check, model.checks))
    spec = ModelSpec(
        source=model.source,
        file=model.file,
        digest=model.digest,
        type=ModelType(model.type),
        format=Format(model.format),
        backend=model.backend,
        engine=model.engine,
        gpus=model.gpus,
        gpu_ids=model.gpu_ids,
        gpu_memory=model.gpu_memory,
        tensor_parallel_size=model.tensor_parallel_size,
        pipeline_parallel_size=model.pipeline_parallel_size,
        extra_args=entry.extra_args,
        env=_env(model.env),
        skip_memory_check=model.skip_memory_check,
        check_files=tuple(sorted({file for each in checks if (file := file_of(each))})),
    )
    return DesiredModel(
        name=ModelName(model.name),
        spec=spec,
        spec_hash=spec_hash(spec),
        place=entry.place,
        flag_places=entry.flag_places,
        enabled=model.enabled,
        refresh=Refresh(model.refresh),
        strategy=Strategy(model.strategy),
        keep_last_good=model.keep_last_good,
        on_failure=OnFailure(model.on_failure),
        aliases=model.aliases,
        timeouts=entry.timeouts,
        checks=checks,
        priority=model.priority,
        max_in_flight=model.max_in_flight,
        affinity=Affinity(model.affinity),
        fallback=_fallback(entry, spec),
    )


def _fallback(entry: ManifestModel, spec: ModelSpec) -> ModelSpec | None:
    """`format`, `backend` and `engine` speak of the source, and so do vLLM's sizes."""
    fallback = entry.model.fallback
    if fallback is None:
        return None
    other = replace(
        spec,
        source=fallback.source,
        file=fallback.file,
        digest=fallback.digest,
        format=Format.AUTO,
        backend="auto",
        engine=None,
        gpus=_gpus_of(spec),
        extra_args=entry.fallback_args,
        env=_env(fallback.env),
    )
    if family_of(fallback) != LLAMA:
        return other
    return replace(other, tensor_parallel_size=None, pipeline_parallel_size=1)


def _gpus_of(spec: ModelSpec) -> int | None:
    """How many the source gets, said without its backend and sizes."""
    if spec.gpus is not None or spec.gpu_ids:
        return spec.gpus
    if is_for_cpu(spec.backend):
        return 0
    product = (spec.tensor_parallel_size or 1) * spec.pipeline_parallel_size
    return product if product > 1 else None


def _env(written: Mapping[str, EnvValue]) -> dict[str, str | SecretRef]:
    return {name: _env_value(value) for name, value in written.items()}


def _env_value(value: EnvValue) -> str | SecretRef:
    if isinstance(value, SecretReference):
        return SecretRef(from_env=value.from_env, from_file=value.from_file)
    return value


def _check(written: CheckEntry) -> Check:
    match written:
        case PromptCheck() | MessageCheck():
            chat = isinstance(written, MessageCheck)
            return TextCheck(
                text=written.message if isinstance(written, MessageCheck) else written.prompt,
                chat=chat,
                contains=_several(written.contains),
                max_tokens=written.max_tokens,
            )
        case InputCheck():
            return EmbeddingCheck(
                text=written.input,
                embedding=written.embedding or (),
                file=_relative(written.embedding_file) if written.embedding_file else None,
                cosine=written.cosine,
            )
        case QueryCheck():
            return RerankCheck(query=written.query, first=written.first, others=written.others)
        case AudioCheck():
            return TranscriptionCheck(
                file=_relative(written.audio_file), contains=_several(written.contains)
            )


def _several(one_or_more: str | tuple[str, ...]) -> tuple[str, ...]:
    return (one_or_more,) if isinstance(one_or_more, str) else one_or_more


def _relative(path: str) -> str:
    return path.removeprefix("@/")
