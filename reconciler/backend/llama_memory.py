"""What both of llama.cpp's servers need of memory (PURE).

weights = the files of the GGUF, and of its projector
KV      = tokens of context × bytes a token (`llama_cache`)
else    = the process itself, and the prompts that it keeps in memory (`cache_ram`)

On the CPU the buffers for computing are allocated and hardly touched: they are left out. Mapped
weights are pages of their file. On GPUs it is spread as `llama_gpu_memory` says, and what stays on
the CPU is reckoned here.

Sources: llama_context in ggml-org/llama.cpp; GGUF's keys in ggml/docs/gguf.md. Measured with
xllamacpp 2026.10 and Gemma 3 270M: 99 MiB beside the weights at a context of 512; 126 MiB more at
32,768, as its cache is larger.
"""

from reconciler.backend import llama_cache, llama_gpu_memory
from reconciler.backend.llama_cache import number
from reconciler.backend.loading import Loading
from reconciler.backend.options import Options
from reconciler.plan.desired import ModelType
from reconciler.plan.memory import HOST, Need, Needs, gathered

PROCESS_BYTES = 90 << 20
_MIB = 1 << 20
_MAPPED = (None, "auto", "mmap")


def needs(loading: Loading) -> Needs:
    if not loading.devices:
        return {HOST: _on_cpu(loading)}
    spread = llama_gpu_memory.spread(loading)
    left = Need(
        weights_bytes=spread.host_weights_bytes,
        kv_cache_bytes=spread.host_cache_bytes,
        overhead_bytes=PROCESS_BYTES + _prompt_bytes(loading),
        mapped_bytes=_mapped(loading, spread.host_weights_bytes),
    )
    return gathered([(HOST, left), *spread.on_gpus])


def _on_cpu(loading: Loading) -> Need:
    weights = loading.size_bytes or None
    overhead = PROCESS_BYTES + _prompt_bytes(loading)
    cache = llama_cache.on_cpu(loading, beside_bytes=(weights or 0) + overhead)
    return Need(
        weights_bytes=weights,
        kv_cache_bytes=cache.size_bytes,
        overhead_bytes=overhead,
        tokens=cache.tokens,
        mapped_bytes=_mapped(loading, weights),
    )


def _mapped(loading: Loading, weights: int | None) -> int:
    return (weights or 0) if _is_mapped(loading.options) else 0


def _prompt_bytes(loading: Loading) -> int:
    """What is kept of prompts that were answered; only what generates does that."""
    if loading.spec.type is not ModelType.LLM:
        return 0
    return (number(loading.options, "--cache-ram") or 0) * _MIB


def _is_mapped(options: Options) -> bool:
    other = ("--no-mmap", "--mlock", "--direct-io")
    return options.value("--load-mode") in _MAPPED and not any(map(options.says, other))
