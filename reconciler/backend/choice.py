"""Which backend runs a model here, and why not another (design §8; PURE)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler.backend.inventory import (
    LLAMA_CPP_PYTHON,
    LLAMA_SERVER_CPU,
    VLLM_CPU,
    VLLM_CUDA,
    VLLM_ROCM,
    XLLAMACPP,
    Build,
    Inventory,
)
from reconciler.plan.desired import Format, ModelSpec, ModelType
from reconciler.plan.gpus import GpuClass
from reconciler.plan.ids import GpuUuid

_LLAMA_CUDA, _LLAMA_ROCM, _LLAMA_VULKAN = (
    f"llama-server-{kind}" for kind in ("cuda", "rocm", "vulkan")
)
_CPU = "CPU"
_TABLE: Mapping[Format, Mapping[GpuClass | str, tuple[str, ...]]] = {
    Format.GGUF: {
        GpuClass.NVIDIA: (_LLAMA_CUDA, _LLAMA_VULKAN),
        GpuClass.CDNA: (_LLAMA_ROCM, _LLAMA_VULKAN),
        GpuClass.RDNA: (_LLAMA_VULKAN, _LLAMA_ROCM),
        _CPU: (LLAMA_SERVER_CPU, XLLAMACPP, LLAMA_CPP_PYTHON),
    },
    Format.SAFETENSORS: {
        GpuClass.NVIDIA: (VLLM_CUDA,),
        GpuClass.CDNA: (VLLM_ROCM,),
        GpuClass.RDNA: (),
        _CPU: (VLLM_CPU,),
    },
}
"""Best first. What is missing in a column runs there only when it is asked for by name."""
_ON_CPU = {format: columns[_CPU] for format, columns in _TABLE.items()}
_NOT_YET = "this release cannot start it yet"
_STARTABLE = (LLAMA_SERVER_CPU, XLLAMACPP, VLLM_CPU)
_TYPES = (ModelType.LLM, ModelType.EMBEDDING, ModelType.RERANK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`reason` is for operators and holds `passed_over` ("id: why not", best first) as well."""

    build: Build
    reason: str
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nothing on this node can run the model. `reason` is a sentence, and says what would help."""

    reason: str


def choose(
    spec: ModelSpec, format: Format, inventory: Inventory, devices: Sequence[GpuUuid] = ()
) -> Choice | Refusal:
    """The first backend of the table that is there, or the one that the manifest names.

    `format`: what the files are; never AUTO.
    """
    if devices or spec.gpus or spec.gpu_ids:
        return Refusal(reason="cannot run on GPUs: this release serves on CPU only, use gpus: 0")
    if spec.type not in _TYPES:
        return Refusal(reason=f"cannot serve type {spec.type}: it is not supported yet")
    if spec.engine is not None:
        return Refusal(reason=f"cannot use engine {spec.engine}: this node names no builds")
    if spec.backend != "auto":
        return _named(spec.backend, format, inventory)
    return _first(format, inventory)


def _named(backend: str, format: Format, inventory: Inventory) -> Choice | Refusal:
    known = {one for columns in _TABLE.values() for row in columns.values() for one in row}
    if backend not in known:
        return Refusal(
            reason=f"cannot use backend {backend}: this release has {', '.join(_STARTABLE)}"
        )
    if not any(backend in row for row in _TABLE[format].values()):
        return Refusal(reason=f"cannot use backend {backend}: it does not run {format} files")
    if backend not in _ON_CPU[format]:
        return Refusal(
            reason=f"cannot use backend {backend}: it needs a GPU, and this release serves on CPU "
            "only"
        )
    build = inventory.build(backend)
    if build is None:
        return Refusal(reason=f"cannot use backend {backend}: {_why_not(backend, inventory)}")
    return Choice(build=build, reason=f"the manifest asks for it: {build.detail}")


def _first(format: Format, inventory: Inventory) -> Choice | Refusal:
    passed_over: list[str] = []
    for backend in _ON_CPU[format]:
        build = inventory.build(backend)
        if build is None:
            passed_over.append(f"{backend}: {_why_not(backend, inventory)}")
            continue
        others = f"; passed over: {'; '.join(passed_over)}" if passed_over else ""
        return Choice(
            build=build,
            reason=f"the first for {format} on CPU that is here: {build.detail}{others}",
            passed_over=tuple(passed_over),
        )
    advice = "; use a model in GGUF format" if format is Format.SAFETENSORS else ""
    return Refusal(
        reason=f"no backend on this node can run {format} on CPU ({'; '.join(passed_over)}){advice}"
    )


def _why_not(backend: str, inventory: Inventory) -> str:
    if backend not in _STARTABLE:
        return _NOT_YET
    return inventory.why_missing(backend) or "it was not looked for"
