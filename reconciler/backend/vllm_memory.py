"""What a vLLM needs of the memory that it runs in (PURE).

CPU   weights, the cache that it is told to make, and the processes themselves
GPU   a share of the device (`gpu_memory_utilization`), whatever the model needs of it: what the
      weights leave is KV cache, and the weights with the KV of one full context must fit into it

On GPUs it refuses to start where less than the share is free, also where it is told how large a
cache to make, and then takes no more than that. Each GPU has weights ÷ (TP × PP), and of the cache
that of one full context (`vllm_cache`) ÷ (PP × TP, or the heads of keys and values where those are
fewer). What it takes of the host's memory then is not known, but for what `cpu_offload_gb` moves
there.

Sources: vllm/v1/worker/cpu_worker.py, gpu_worker.py (init_device, determine_available_memory),
utils.py (request_memory), core/kv_cache_utils.py (_check_enough_kv_cache_memory) and
config/cache.py of 0.32, read and not run on a GPU. Measured with 0.32 on the CPU: 1 GiB for a model
of a few MB with a cache of 256 MiB.
"""

from reconciler.backend import vllm_cache
from reconciler.backend.loading import Loading
from reconciler.backend.vllm_devices import CACHE_SPACE, KV_CACHE_GIB
from reconciler.plan.gpus import Gpu
from reconciler.plan.memory import HOST, Need, Needs, gathered, pool_of

PROCESS_BYTES = 700 << 20
_GIB = 1 << 30
_SHARE = 0.9
"""The default; newer releases take 0.92. The smaller one refuses nothing that would do."""
_CACHE = "--kv-cache-memory-bytes"


def needs(loading: Loading) -> Needs:
    if not loading.devices:
        return {HOST: _on_cpu(loading)}
    return gathered((pool_of(device), _on_gpu(loading, device)) for device in loading.devices)


def _on_cpu(loading: Loading) -> Need:
    told = loading.options.value(_CACHE)
    return Need(
        weights_bytes=_weights(loading),
        kv_cache_bytes=vllm_cache.size_bytes(told) if told is not None else _space_bytes(loading),
        overhead_bytes=PROCESS_BYTES,
    )


def _on_gpu(loading: Loading, device: Gpu) -> Need:
    told, weights = loading.options.value(_CACHE), _weights(loading)
    tensor, pipeline = (
        _count(loading, f"--{kind}-parallel-size") for kind in ("tensor", "pipeline")
    )
    if weights is not None:
        weights = max(weights // (tensor * pipeline) - _moved(loading), 0)
    claim = _claim(loading, device)
    if told is not None:
        return Need(
            weights_bytes=weights, kv_cache_bytes=vllm_cache.size_bytes(told), checked_bytes=claim
        )
    heads = min(tensor, loading.info.kv_heads or tensor)
    cache = vllm_cache.on_all_gpus(loading, device)
    return Need(
        weights_bytes=weights,
        kv_cache_bytes=None if cache is None else cache // (pipeline * heads),
        tokens=None if cache is None else vllm_cache.tokens(loading),
        claimed_bytes=claim,
    )


def _weights(loading: Loading) -> int | None:
    """As they are in memory: what is in 32 bits is loaded in 16, unless that is asked for."""
    stored = loading.info.weights_bytes
    asked = loading.options.value("--dtype")
    if stored is None or loading.info.dtype != "float32" or asked in ("float32", "float"):
        return stored
    return stored // 2


def _claim(loading: Loading, device: Gpu) -> int | None:
    """What works in the machine's memory claims that."""
    total = loading.machine_bytes if device.unified else device.memory_total_bytes
    share = _decimal(loading, "--gpu-memory-utilization", _SHARE)
    return None if total is None or share is None else int(share * total)


def _moved(loading: Loading) -> int:
    """Of each GPU's weights, what stays in the host's memory."""
    return int((_decimal(loading, "--cpu-offload-gb", 0.0) or 0.0) * _GIB)


def _decimal(loading: Loading, flag: str, otherwise: float) -> float | None:
    written = loading.options.value(flag)
    try:
        return otherwise if written is None else float(written)
    except ValueError:
        return None


def _space_bytes(loading: Loading) -> int | None:
    """For versions that are told by a variable, in GiB."""
    written = loading.spec.env.get(CACHE_SPACE, str(KV_CACHE_GIB))
    return int(written) * _GIB if isinstance(written, str) and written.isdecimal() else None


def _count(loading: Loading, flag: str) -> int:
    written = loading.options.value(flag)
    return max(int(written), 1) if written is not None and written.isdecimal() else 1
