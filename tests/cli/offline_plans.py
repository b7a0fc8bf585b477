"""Plans from two manifests and a fleet file, in a process of the test's own."""

from collections.abc import Mapping, Sequence

from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import Offer
from reconciler.cli.offline_plan.plans import OfflineQuestion, offline_plans
from reconciler.errors import Rejected
from reconciler.manifest.fleet_model import FleetNode
from reconciler.manifest.inspection import inspect
from reconciler.manifest.resolve import FileInput
from reconciler.manifest.union import Manifest
from reconciler.plan.changes import Change, NodeChanges
from reconciler.plan.desired import Format, ModelSpec
from tests.manifest.texts import manifest

GIB = 1 << 30
H100 = {"vendor": "nvidia", "name": "H100", "memory": "80GiB", "architecture": "9.0"}
MI300 = {"vendor": "amd", "name": "MI300X", "memory": "192GiB", "architecture": "gfx942"}
CUDA = [
    {"backend": "llama-server-cuda", "version": "b6200"},
    {"backend": "vllm-cuda", "version": "0.32"},
    {"backend": "llama-server-cpu"},
]


def node(name: str = "node-a", **fields: object) -> FleetNode:
    return FleetNode.model_validate({"name": name, **fields})


def gpus(count: int = 2, **fields: object) -> FleetNode:
    told: dict[str, object] = {"gpus": [{**H100, "count": count}], "engines": CUDA, **fields}
    return FleetNode.model_validate({"name": "node-a", **told})


def read(*models: str | dict[str, object], **spec: object) -> Manifest:
    found = inspect([FileInput(name="m.json", content=manifest(*models, **spec))])
    assert found.manifest is not None, found.problems
    return found.manifest


def plans(
    after: Manifest,
    before: Manifest | None = None,
    *fleet: FleetNode,
    sizes: Mapping[str, int] | None = None,
    only: str | None = None,
    peers: bool = False,
) -> list[NodeChanges]:
    """`sizes`: of GGUFs in the hub, by source, in GiB; None: no hub is asked."""

    def offer(spec: ModelSpec) -> Offer | None:
        assert sizes is not None
        if spec.source.startswith("hf://"):
            return None
        if spec.source not in sizes:
            raise Rejected(f"cannot find {spec.source}: hub has none")
        size_bytes = sizes[spec.source] * GIB
        info = ModelInfo(weights_bytes=size_bytes, kv_bytes_per_token=1 << 16, context_length=8192)
        return Offer(format=Format.GGUF, size_bytes=size_bytes, weights_bytes=size_bytes, info=info)

    question = OfflineQuestion(
        wanted=after, before=before, fleet=fleet or None, node=only, peers=peers
    )
    return offline_plans(question, offer if sizes is not None else None, here="here")


def one(made: Sequence[NodeChanges], name: str) -> Change:
    (change,) = [each for node in made for each in node.changes if each.model == name]
    return change
