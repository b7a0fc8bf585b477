"""How large a cache of keys and values vLLM wants at its start: for one full context (PURE).

KV = tokens × bytes a token at 16 bits (`kv_cache`, `hf_config`), by `kv_cache_dtype`

Layers with a window keep the window and one batch (`max_num_batched_tokens`) where the hybrid cache
manager surely works:

tokens kept = window - 1 + batch, rounded up to a block, and one block

It forms groups of as many layers as the rarer kind has, or as the other kind where there are hardly
more, and fills each group up: of Gemma 3 27B, the 52 layers with a window take what 60 would. Where
it may not work, each layer keeps the whole context: on AMD before 0.20, before 0.10, with pooling
models, connectors, events, speculation or context that is split, and where it is switched off.

Sources: docs.vllm.ai/en/latest/design/hybrid_kv_cache_manager; in vllm-project/vllm
SlidingWindowSpec (v1/kv_cache_interface.py), _get_kv_cache_groups_uniform_page_size,
unify_hybrid_kv_cache_specs and _max_memory_usage_bytes_from_groups (v1/core/kv_cache_utils.py),
VllmConfig (config/vllm.py), support_hybrid_kv_cache (platforms/) and get_batch_defaults
(engine/arg_utils.py). Read, and not run on a GPU.
"""

import re

from reconciler.backend.loading import Loading
from reconciler.backend.vllm_versions import parse
from reconciler.plan.desired import ModelType
from reconciler.plan.gpus import Gpu, Vendor
from reconciler.plan.windows import Windows

_GIB = 1 << 30
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)")
_POWERS = ("", "k", "m", "g", "t")
_HALVED = ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla")
_FULL_SIZE = (None, "auto", "bfloat16", "float16")
_DOUBLED = ("float32", "float")
_BLOCK_TOKENS = 16
_BATCH_TOKENS, _LARGE_BATCH_TOKENS = 2048, 8192
_LARGE_BYTES = 70 * _GIB
"""GPUs from there on get the larger batch, but for the A100."""
_SINCE = {Vendor.NVIDIA: (0, 10), Vendor.AMD: (0, 20)}
_UNSURE = (
    "--decode-context-parallel-size",
    "--disable-hybrid-kv-cache-manager",
    "--disable-sliding-window",
    "--hf-overrides",
    "--kv-events-config",
    "--kv-transfer-config",
    "--no-enable-chunked-prefill",
    "--prefill-context-parallel-size",
    "--speculative-config",
)
_OLDER_ENGINE = "VLLM_USE_V1"


def tokens(loading: Loading) -> int | None:
    """Of one full context. None also where it makes that as long as memory allows (`auto`)."""
    written = loading.options.value("--max-model-len")
    return loading.info.context_length if written is None else size_bytes(written)


def on_all_gpus(loading: Loading, device: Gpu) -> int | None:
    """In bytes, on the GPUs of all of its layers and heads; `device`: one of them."""
    wanted, windows = tokens(loading), loading.info.windows
    full = loading.info.kv_bytes_per_token
    if wanted is None:
        return None
    if full is None and windows is not None:
        full = windows.full_bytes + windows.windowed_bytes
        if _drops(loading, device):
            return _sized(loading, _in_groups(windows, wanted, _batch(loading, device)))
    return None if full is None else _sized(loading, wanted * full)


def size_bytes(written: str) -> int | None:
    """`4G` is 4 × 1024³, `4g` 4 × 1000³."""
    found = _SIZE.fullmatch(written)
    if found is None:
        return None
    number, unit = found.groups()
    base = 1024 if unit.isupper() else 1000
    return int(float(number) * base ** _POWERS.index(unit.lower()))


def _in_groups(windows: Windows, wanted: int, batch: int) -> int:
    full, windowed = windows.full_layers, windows.windowed_layers
    kept = _blocks(min(windows.window_tokens - 1 + batch, wanted)) + 1
    fewer, more = sorted((full, windowed))
    group = more if not fewer or more < fewer * 1.5 else fewer
    blocks = -(-full // group) * _blocks(wanted) + -(-windowed // group) * kept
    return group * blocks * _BLOCK_TOKENS * windows.layer_bytes


def _blocks(count: int) -> int:
    return -(-count // _BLOCK_TOKENS)


def _drops(loading: Loading, device: Gpu) -> bool:
    """Whether layers with a window surely keep no more than that."""
    told = {argument.name.partition(".")[0] for argument in loading.options.arguments}
    return (
        parse(loading.build.version) >= _SINCE[device.vendor]
        and loading.spec.type is ModelType.LLM
        and _OLDER_ENGINE not in loading.spec.env
        and told.isdisjoint(_UNSURE)
    )


def _batch(loading: Loading, device: Gpu) -> int:
    written = loading.options.value("--max-num-batched-tokens")
    if written is not None and (found := size_bytes(written)) is not None:
        return found
    total = device.memory_total_bytes
    small = "a100" in device.name.lower() or (total is not None and total < _LARGE_BYTES)
    return _BATCH_TOKENS if small else _LARGE_BATCH_TOKENS


def _sized(loading: Loading, found: int) -> int | None:
    """As large as it is with the type that the cache has."""
    kind = loading.options.value("--kv-cache-dtype")
    if kind in _HALVED:
        return found // 2
    if kind not in _FULL_SIZE:
        return None
    own = kind in (None, "auto") and loading.options.value("--dtype") in _DOUBLED
    return 2 * found if own else found
