"""Which backend runs a model here, and why not another (design §8; PURE)."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.backend.inventory import (
    LLAMA_CPP_PYTHON,
    LLAMA_SERVER_CPU,
    LLAMA_SERVER_CUDA,
    LLAMA_SERVER_ROCM,
    LLAMA_SERVER_VULKAN,
    VLLM_CPU,
    VLLM_CUDA,
    VLLM_ROCM,
    XLLAMACPP,
    Build,
    Inventory,
    Missing,
)
from reconciler.plan.desired import Format, ModelSpec, ModelType
from reconciler.plan.gpu_claims import named
from reconciler.plan.gpus import Gpu, GpuClass, Vendor

_CPU = "CPU"
_Place = Vendor | str
_TABLE: Mapping[Format, Mapping[GpuClass | str, tuple[str, ...]]] = {
    Format.GGUF: {
        GpuClass.NVIDIA: (LLAMA_SERVER_CUDA, LLAMA_SERVER_VULKAN),
        GpuClass.CDNA: (LLAMA_SERVER_ROCM, LLAMA_SERVER_VULKAN),
        GpuClass.RDNA: (LLAMA_SERVER_VULKAN, LLAMA_SERVER_ROCM),
        _CPU: (LLAMA_SERVER_CPU, XLLAMACPP, LLAMA_CPP_PYTHON),
    },
    Format.SAFETENSORS: {
        GpuClass.NVIDIA: (VLLM_CUDA,),
        GpuClass.CDNA: (VLLM_ROCM,),
        _CPU: (VLLM_CPU,),
    },
}
"""Best first. What is missing in a column runs there only when it is asked for by name."""
_RUNS_ON: Mapping[str, tuple[_Place, ...]] = {
    LLAMA_SERVER_CUDA: (Vendor.NVIDIA,),
    LLAMA_SERVER_ROCM: (Vendor.AMD,),
    LLAMA_SERVER_VULKAN: (Vendor.NVIDIA, Vendor.AMD),
    LLAMA_SERVER_CPU: (_CPU,),
    XLLAMACPP: (_CPU,),
    LLAMA_CPP_PYTHON: (_CPU,),
    VLLM_CUDA: (Vendor.NVIDIA,),
    VLLM_ROCM: (Vendor.AMD,),
    VLLM_CPU: (_CPU,),
}
_HEARING = (VLLM_CUDA, VLLM_ROCM, VLLM_CPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`reason` is for operators and holds `passed_over` ("id: why not", best first) as well.

    `devices`: the GPUs that the model gets; none: the CPU.
    """

    build: Build
    reason: str
    passed_over: tuple[str, ...] = ()
    devices: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Nothing on this node can run the model. `reason` is a sentence, and says what would help;
    `cause` is that without the help. `passed_over`: as in `Choice`."""

    reason: str
    cause: str = ""
    passed_over: tuple[str, ...] = ()


def choose(
    spec: ModelSpec, format: Format, inventory: Inventory, devices: Sequence[Gpu] = ()
) -> Choice | Refusal:
    """The first backend of the table that is there, or the one that the manifest names.

    `format`: what the files are; never AUTO. `devices`: what the model gets.
    """
    if spec.type is ModelType.TRANSCRIPTION and (deaf := _deaf(spec, format)) is not None:
        return deaf
    if len({device.gpu_class for device in devices}) > 1:
        listed = ", ".join(f"{named(each)} is {each.gpu_class}" for each in devices)
        return Refusal(reason=f"cannot run on GPUs of different kinds: {listed}")
    if len(devices) > 1 and any(device.mig_of is not None for device in devices):
        return Refusal(reason="cannot run on several MIG instances: CUDA shows a process only one")
    if spec.engine is not None:
        return _of_that_name(spec, format, inventory, devices)
    if spec.backend != "auto":
        return _named(spec.backend, format, inventory, devices)
    made = _first(format, inventory, devices)
    if isinstance(made, Refusal) and spec.type is ModelType.TRANSCRIPTION:
        return replace(made, reason=made.cause)  # what would help others is a GGUF
    return made


def _deaf(spec: ModelSpec, format: Format) -> Refusal | None:
    """llama.cpp's servers have models that hear a question, and none that writes down speech."""
    if format is not Format.GGUF:
        return None
    asked = (spec.backend,) if spec.backend != "auto" else ()
    every = asked or dict.fromkeys(each for row in _TABLE[format].values() for each in row)
    why = tuple(f"{backend}: it serves no type transcription" for backend in every)
    cause = f"cannot serve {format} files as type transcription ({'; '.join(why)})"
    return Refusal(
        reason=f"{cause}; {', '.join(_HEARING)} would, with safetensors",
        cause=cause,
        passed_over=why,
    )


def build_named(spec: ModelSpec, inventory: Inventory) -> Build | Refusal:
    """The build whose name the manifest gives as `engine`, whatever else there is."""
    name = spec.engine or ""
    cannot = f"cannot use engine {name}:"
    found = inventory.named(name)
    if found is None:
        reason = f"{cannot} {_no_such_name(name, inventory)}"
        return Refusal(reason=reason, passed_over=(reason,))
    if spec.backend not in ("auto", found.id):
        asked = f"it is a build of {found.id}, and the manifest asks for {spec.backend}"
        return Refusal(reason=f"{cannot} {asked}")
    if isinstance(found, Missing):
        reason = f"{cannot} {found.reason}"
        return Refusal(reason=reason, passed_over=(f"{name}: {found.reason}",))
    return found


def _no_such_name(name: str, inventory: Inventory) -> str:
    there = inventory.names
    if not there:
        return f"this node names no builds; start its agent with --engine {name}=BACKEND:PATH"
    close = difflib.get_close_matches(name, [known for known, _ in there], n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    usable = {build.key[::-1] for build in inventory.builds}
    fit = ", ".join(f"{known} ({id})" for known, id in there if (known, id) in usable)
    unfit = ", ".join(f"{known} ({id})" for known, id in there if (known, id) not in usable)
    if not fit:
        return f"this node has {unfit}, which it cannot use{meant}"
    return f"this node has {fit}{f', and cannot use {unfit}' if unfit else ''}{meant}"


def _of_that_name(
    spec: ModelSpec, format: Format, inventory: Inventory, devices: Sequence[Gpu]
) -> Choice | Refusal:
    build = build_named(spec, inventory)
    if isinstance(build, Refusal):
        return build
    unfit = _unfit(build.id, format, devices)
    if unfit is not None:
        cpu = "; gpus: 0 is the CPU" if devices and _CPU in _RUNS_ON[build.id] else ""
        return Refusal(reason=f"cannot use engine {build.name}: {build.id} {unfit}{cpu}")
    reason = f"the manifest asks for {build.name}: {build.detail}"
    return Choice(build=build, reason=reason, devices=tuple(devices))


def _named(
    backend: str, format: Format, inventory: Inventory, devices: Sequence[Gpu]
) -> Choice | Refusal:
    cannot = f"cannot use backend {backend}:"
    if backend not in _RUNS_ON:
        return Refusal(reason=f"{cannot} this release has {', '.join(_RUNS_ON)}")
    unfit = _unfit(backend, format, devices)
    if unfit is not None:
        return Refusal(reason=f"{cannot} it {unfit}{_instead(format, inventory, devices)}")
    build = inventory.build(backend)
    if build is None:
        reason = _why_not(backend, inventory)
        return Refusal(
            reason=f"{cannot} {reason}{_instead(format, inventory, devices)}",
            cause=f"{cannot} {reason}",
            passed_over=(f"{backend}: {reason}",),
        )
    return Choice(
        build=build, reason=f"the manifest asks for it: {build.detail}", devices=tuple(devices)
    )


def _unfit(backend: str, format: Format, devices: Sequence[Gpu]) -> str | None:
    """Why no build of it can run such files on these devices, as the end of a sentence."""
    if not any(backend in row for row in _TABLE[format].values()):
        return f"does not run {format} files"
    if not _places(devices).issubset(_RUNS_ON[backend]):
        needs = " or ".join(_RUNS_ON[backend])
        return f"runs on {needs}, and the model gets {_what(devices)}"
    return None


def _first(format: Format, inventory: Inventory, devices: Sequence[Gpu]) -> Choice | Refusal:
    passed_over: list[str] = []
    column = devices[0].gpu_class if devices else _CPU
    for backend in _TABLE[format].get(column, ()):
        build = inventory.build(backend)
        if build is None:
            passed_over.append(f"{backend}: {_why_not(backend, inventory)}")
            continue
        others = f"; passed over: {'; '.join(passed_over)}" if passed_over else ""
        return Choice(
            build=build,
            reason=f"the first for {format} on {column} that is here: {build.detail}{others}",
            passed_over=tuple(passed_over),
            devices=tuple(devices),
        )
    why = f" ({'; '.join(passed_over)})" if passed_over else ""
    cause = f"no backend on this node can run {format} on {_what(devices)}{why}"
    return Refusal(
        reason=f"{cause}{_advice(format, inventory, devices)}",
        cause=cause,
        passed_over=tuple(passed_over),
    )


def _advice(format: Format, inventory: Inventory, devices: Sequence[Gpu]) -> str:
    """What an operator may do, where nothing can be taken of itself."""
    where = _places(devices)
    row = {backend for backends in _TABLE[format].values() for backend in backends}
    said = [
        f"{f'engine: {build.name}' if build.name else f'backend: {build.id}'} would, asked for by "
        "name"
        for build in inventory.builds
        if build.id in row and where.issubset(_RUNS_ON[build.id])
    ]
    if format is Format.SAFETENSORS:
        said.append("use a model in GGUF format")
    if devices and isinstance(_first(format, inventory, ()), Choice):
        said.append("gpus: 0 would run it on the CPU")
    return "".join(f"; {each}" for each in said)


def _instead(format: Format, inventory: Inventory, devices: Sequence[Gpu]) -> str:
    auto = _first(format, inventory, devices)
    return f"; {auto.build.id} would run here" if isinstance(auto, Choice) else ""


def _places(devices: Sequence[Gpu]) -> set[_Place]:
    return {device.vendor for device in devices} if devices else {_CPU}


def _what(devices: Sequence[Gpu]) -> str:
    if not devices:
        return "the CPU"
    return f"{' and '.join(named(device) for device in devices)}, {devices[0].gpu_class}"


def _why_not(backend: str, inventory: Inventory) -> str:
    reason = inventory.why_missing(backend) or "it was not looked for"
    names = [build.name for build in inventory.builds if build.id == backend and build.name]
    return f"{reason}; {' and '.join(names)} only where a model names it" if names else reason
