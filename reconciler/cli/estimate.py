"""What a changed model would need of memory, from what an agent reckoned for it as it is (PURE).

Only the agent reads the files. What does not bear on memory changes nothing, another context
changes the KV cache in proportion; of all else nothing is said.
"""

from collections.abc import Mapping
from dataclasses import replace

from reconciler.plan.memory import Need, Needs

Fields = Mapping[str, object]
"""By dotted path: `extra_args.ctx_size`."""

_CONTEXT = "extra_args.ctx_size"
_BEARING = frozenset(
    f"extra_args.{name}"
    for name in (
        *("cache_type_k", "cache_type_v", "cache_ram", "fit", "fit_ctx", "fit_target"),
        *("mmap", "no_mmap", "mlock", "load_mode", "direct_io"),
        *("n_gpu_layers", "gpu_layers", "ngl", "tensor_split", "split_mode", "main_gpu"),
        *("no_kv_offload", "kv_offload", "override_tensor", "cpu_moe", "n_cpu_moe", "ubatch_size"),
        *("no_mmproj_offload", "mmproj_offload"),
        *("kv_cache_memory_bytes", "dtype", "gpu_memory_utilization", "kv_cache_dtype"),
        *("max_model_len", "cpu_offload_gb"),
    )
) | {"env.VLLM_CPU_KVCACHE_SPACE"}
"""Flags and variables that an engine's need follows from, beside the context."""
_BY_KEY = ("extra_args.", "env.")
_CELLS = 256
"""llama.cpp's cache has a multiple of so many tokens."""


def changed_needs(needs: Needs, old: Fields, new: Fields) -> Needs:
    """`needs` are of `old`; none: it cannot be told from that."""
    differing = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    if any(map(_bears, differing - {_CONTEXT})):
        return {}
    if _CONTEXT not in differing:
        return needs
    changed = {pool: _with_context(need, new.get(_CONTEXT)) for pool, need in needs.items()}
    return {pool: need for pool, need in changed.items() if need is not None}


def _bears(path: str) -> bool:
    """A field of the spec itself says which files, which engine, which devices."""
    if path.startswith(_BY_KEY):
        return path in _BEARING
    return path not in ("skip_memory_check", "check_files")


def _with_context(need: Need, asked: object) -> Need | None:
    if not need.tokens:
        return need
    if not isinstance(asked, int) or asked <= 0:
        return None
    tokens = -(-asked // _CELLS) * _CELLS
    before = need.kv_cache_bytes
    cache = None if before is None else before * tokens // need.tokens
    return replace(need, tokens=tokens, kv_cache_bytes=cache, grows=False)
