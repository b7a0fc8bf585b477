"""Which models of the manifest are for one node, as the planner's desired state."""

from reconciler.manifest.model import EnvValue, Model, SecretReference
from reconciler.manifest.union import Manifest, ManifestModel
from reconciler.plan.desired import (
    Desired,
    DesiredModel,
    Elsewhere,
    Format,
    ModelSpec,
    ModelType,
    Refresh,
    SecretRef,
)
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.spec_hash import spec_hash


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
            elsewhere.append(Elsewhere(name=ModelName(entry.model.name), reason=reason))
    settings = manifest.node_settings.get(node)
    return Desired(
        node=NodeName(node),
        revision=revision,
        models=tuple(here),
        elsewhere=tuple(elsewhere),
        suspend=manifest.suspend or (settings is not None and settings.suspend),
    )


def _reason_elsewhere(model: Model, node: str, peers: bool) -> str | None:
    if model.nodes is None:
        if peers:
            return "it names no nodes: with peers that needs placement, which is not supported yet"
        return None
    if model.nodes == "all" or node in model.nodes:
        return None
    return f"nodes: [{', '.join(model.nodes)}]; this node is {node}"


def _desired(entry: ManifestModel) -> DesiredModel:
    model = entry.model
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
        env={name: _env_value(value) for name, value in model.env.items()},
        skip_memory_check=model.skip_memory_check,
    )
    return DesiredModel(
        name=ModelName(model.name),
        spec=spec,
        spec_hash=spec_hash(spec),
        place=entry.place,
        enabled=model.enabled,
        refresh=Refresh(model.refresh),
        keep_last_good=model.keep_last_good,
        aliases=model.aliases,
        timeouts=entry.timeouts,
        priority=model.priority,
        max_in_flight=model.max_in_flight,
    )


def _env_value(value: EnvValue) -> str | SecretRef:
    if isinstance(value, SecretReference):
        return SecretRef(from_env=value.from_env, from_file=value.from_file)
    return value
