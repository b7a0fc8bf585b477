"""Which GPUs a vLLM gets, how it spreads over them, and what of their memory it takes (PURE)."""

import math
from collections.abc import Iterator, Mapping, Sequence

from reconciler.backend.inventory import VLLM_CPU, VLLM_CUDA, VLLM_ROCM, Build
from reconciler.backend.options import Default
from reconciler.backend.visible_devices import by_hip_number, by_uuid
from reconciler.backend.vllm_versions import Traits
from reconciler.errors import Rejected
from reconciler.plan.desired import ModelSpec
from reconciler.plan.gpus import Gpu, Vendor
from reconciler.plan.shares import size_bytes

KV_CACHE_GIB = 4
"""On CPU, where vLLM would else claim 92% of the machine's memory."""
_GIB = 1024**3
_VENDORS: Mapping[str, Vendor | None] = {
    VLLM_CUDA: Vendor.NVIDIA,
    VLLM_ROCM: Vendor.AMD,
    VLLM_CPU: None,
}
CACHE_SPACE = "VLLM_CPU_KVCACHE_SPACE"


def need_devices(build: Build, devices: Sequence[Gpu]) -> None:
    """Raises Rejected where the build is not for these devices."""
    vendor = _VENDORS[build.id]
    if vendor is None and devices:
        raise Rejected(f"cannot run {build.id} on GPUs: it is built for the CPU")
    if vendor is not None and not devices:
        raise Rejected(f"cannot run {build.id} without a GPU")
    for device in devices:
        if device.vendor is not vendor:
            raise Rejected(f"cannot run {build.id} on {device.name}: it is built for {vendor}")


def selection(build: Build, devices: Sequence[Gpu]) -> dict[str, str]:
    """The variables that show a process these devices, and no others."""
    match _VENDORS[build.id]:
        case None:
            return {}
        case Vendor.NVIDIA:
            return by_uuid(devices, "vLLM")
        case Vendor.AMD:
            return by_hip_number(devices, "vLLM")


def spread(spec: ModelSpec, devices: Sequence[Gpu]) -> Iterator[Default]:
    """How the model is cut, which must come to as many parts as there are devices."""
    pipeline = spec.pipeline_parallel_size
    copies = _copies(spec)
    count = max(len(devices), 1)
    tensor = spec.tensor_parallel_size or max(count // (pipeline * copies), 1)
    if tensor * pipeline * copies != count:
        times = f" × data_parallel_size {copies}" if copies != 1 else ""
        raise Rejected(
            f"cannot run on {_counted(len(devices))}: tensor_parallel_size {tensor} × "
            f"pipeline_parallel_size {pipeline}{times} = {tensor * pipeline * copies}"
        )
    if tensor > 1:
        yield Default("--tensor-parallel-size", str(tensor))
    if pipeline > 1:
        yield Default("--pipeline-parallel-size", str(pipeline))


def _copies(spec: ModelSpec) -> int:
    copies = spec.extra_args.get("data_parallel_size", 1)
    if isinstance(copies, str) and copies.isdecimal():
        copies = int(copies)
    if not isinstance(copies, int) or isinstance(copies, bool) or copies < 1:
        raise Rejected(f"cannot use extra_args.data_parallel_size: {copies!r} is not 1 or more")
    return copies


def memory(spec: ModelSpec, devices: Sequence[Gpu], traits: Traits) -> Iterator[Default]:
    """The share of each GPU, or the cache on CPU. Raises Rejected for one that cannot be."""
    if devices:
        if spec.gpu_memory is not None:
            yield Default("--gpu-memory-utilization", _share(spec.gpu_memory, devices))
        return
    if spec.gpu_memory is not None:
        raise Rejected("cannot use gpu_memory on CPU: use extra_args.kv_cache_memory_bytes")
    if CACHE_SPACE in spec.env and traits.kv_bytes:
        raise Rejected(f"cannot use env.{CACHE_SPACE}: use extra_args.kv_cache_memory_bytes")
    if not traits.kv_bytes and "kv_cache_memory_bytes" in spec.extra_args:
        raise Rejected(
            "cannot use extra_args.kv_cache_memory_bytes: this version does not read it on CPU; "
            f"use env.{CACHE_SPACE}, in GiB"
        )
    if traits.kv_bytes:
        yield Default("--kv-cache-memory-bytes", str(KV_CACHE_GIB * _GIB))


def cache_variable(spec: ModelSpec, devices: Sequence[Gpu], traits: Traits) -> dict[str, str]:
    """For versions that are told the size of their cache on CPU by a variable only."""
    if devices or traits.kv_bytes or CACHE_SPACE in spec.env:
        return {}
    return {CACHE_SPACE: str(KV_CACHE_GIB)}


def _share(written: str, devices: Sequence[Gpu]) -> str:
    if (wanted := size_bytes(written)) is None:
        return written
    shares = []
    for device in devices:
        total = device.memory_total_bytes
        if total is None:
            raise Rejected(
                f"cannot turn gpu_memory {written} into a share: the memory of {device.name} is "
                "not known; write a share such as 0.45"
            )
        if wanted > total:
            raise Rejected(
                f"cannot give {written} of {device.name}: it has {total / _GIB:.1f}GiB in all"
            )
        shares.append(wanted / total)
    # One share counts for all of them: no device gives more than was asked.
    return f"{math.floor(min(shares) * 10_000) / 10_000:.4f}"


def _counted(count: int) -> str:
    return "the CPU" if count == 0 else f"{count} GPU{'s' if count > 1 else ''}"
