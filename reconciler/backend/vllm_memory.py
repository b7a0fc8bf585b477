"""What a vLLM needs of the memory that it runs in (PURE).

CPU   weights, the cache that it is told to make, and the processes themselves
GPU   a share of the device, whatever the model needs of it: what the weights leave is KV cache

Sources: vllm/v1/worker/cpu_worker.py and gpu_worker.py, CacheConfig.gpu_memory_utilization.
Measured with 0.32 on the CPU: 1 GiB for a model of a few MB with a cache of 256 MiB.
"""

import re

from reconciler.backend.loading import Loading
from reconciler.backend.vllm_devices import CACHE_SPACE, KV_CACHE_GIB
from reconciler.plan.gpus import Gpu
from reconciler.plan.memory import Need

PROCESS_BYTES = 700 << 20
_GIB = 1 << 30
_SHARE = 0.9
"""The default; newer releases take 0.92. The smaller one refuses nothing that would do."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)")
_POWERS = ("", "k", "m", "g", "t")
_CACHE = "--kv-cache-memory-bytes"


def need(loading: Loading, device: Gpu | None = None) -> Need:
    """Of the host's memory; or of one device's, among as many as the model is spread over."""
    parts = _count(loading, "--tensor-parallel-size") * _count(loading, "--pipeline-parallel-size")
    weights = _weights(loading)
    weights = None if weights is None else weights // parts
    told = loading.options.value(_CACHE)
    if device is not None and told is None:
        return Need(weights_bytes=weights, claimed_bytes=_claim(loading, device))
    return Need(
        weights_bytes=weights,
        kv_cache_bytes=_size_bytes(told) if told is not None else _space_bytes(loading),
        overhead_bytes=PROCESS_BYTES if device is None else 0,
    )


def _weights(loading: Loading) -> int | None:
    """As they are in memory: what is in 32 bits is loaded in 16, unless that is asked for."""
    stored = loading.info.weights_bytes
    asked = loading.options.value("--dtype")
    if stored is None or loading.info.dtype != "float32" or asked in ("float32", "float"):
        return stored
    return stored // 2


def _claim(loading: Loading, device: Gpu) -> int | None:
    if device.memory_total_bytes is None:
        return None
    written = loading.options.value("--gpu-memory-utilization")
    try:
        share = float(written) if written is not None else _SHARE
    except ValueError:
        return None
    return int(share * device.memory_total_bytes)


def _space_bytes(loading: Loading) -> int | None:
    """For versions that are told by a variable, in GiB."""
    written = loading.spec.env.get(CACHE_SPACE, str(KV_CACHE_GIB))
    return int(written) * _GIB if isinstance(written, str) and written.isdecimal() else None


def _size_bytes(written: str) -> int | None:
    """`4G` is 4 × 1024³, `4g` 4 × 1000³."""
    found = _SIZE.fullmatch(written)
    if found is None:
        return None
    number, unit = found.groups()
    base = 1024 if unit.isupper() else 1000
    return int(float(number) * base ** _POWERS.index(unit.lower()))


def _count(loading: Loading, flag: str) -> int:
    written = loading.options.value(flag)
    return max(int(written), 1) if written is not None and written.isdecimal() else 1
