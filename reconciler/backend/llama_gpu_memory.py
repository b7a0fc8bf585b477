"""How llama.cpp spreads a model over GPUs and the CPU (PURE).

Layers are the model's blocks and, as the last one, the output. The last `n_gpu_layers` of them go
to GPUs, cut by `tensor_split` (by the GPUs' memory, where nothing is said): layer i of n to the
first GPU whose share, summed up, is more than i / n. Each block brings its weights and its part of
the cache. The embedding of words stays on the CPU; where it is the output's too, it is copied.

A GPU's need = weights of its layers + their KV + buffers for computing + the driver's context
buffers    = tokens of a batch (`ubatch_size`) × (2 bytes × context + 64 bytes × embedding length)

What cannot be told (blocks that are not listed, single tensors moved to the CPU, `n_gpu_layers:
auto`, for which the engine looks what is free) is not known: the need is then a lower bound.

Sources: llama_model::load_tensors (i_gpu_start, act_gpu_layers, the splits), llama_kv_cache and
common_params_fit in ggml-org/llama.cpp. The buffers were measured with xllamacpp 2026.10 on the CPU
and Gemma 3 270M (embedding length 640): 19.3 MiB at a context and batch of 512 (20.5 reckoned),
51.3 at 32,768 (52.0), 103.6 with a batch of 1,024 (104.0), 12.8 with 128 (13.0). Without flash
attention, or in builds that keep the scores of a whole batch, they are larger. The context of a
driver is what its documentation and reports say, the least of it; it was not measured.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from reconciler.backend.llama_cache import knows_fit, number, on_gpus
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import Layers
from reconciler.backend.options import Options
from reconciler.plan.memory import Need, Pool, pool_of

CONTEXT_BYTES = 128 << 20
_BATCH_TOKENS = 512
_MORE_THAN_ALL = 999
"""No model has so many layers; it is what we ask for."""
_MOVED = ("--override-tensor", "--cpu-moe", "--n-cpu-moe")
"""Single tensors that go elsewhere than their layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """In bytes; None: not known."""

    host_weights_bytes: int | None
    host_cache_bytes: int | None
    on_gpus: tuple[tuple[Pool, Need], ...]


def spread(loading: Loading) -> Spread:
    shares = _shares(loading)
    places = _places(loading, shares)
    weights = _weights(loading, shares, places)
    cache = on_gpus(loading)
    parts = _parts(loading, shares, places)
    left = None if parts is None else max(1 - sum(parts), 0.0)
    return Spread(
        host_weights_bytes=weights.host,
        host_cache_bytes=_part(cache.size_bytes, left),
        on_gpus=tuple(
            (
                pool_of(device),
                Need(
                    weights_bytes=weights.gpus[at],
                    kv_cache_bytes=_part(cache.size_bytes, parts[at] if parts else None),
                    overhead_bytes=CONTEXT_BYTES + _buffers(loading, cache.tokens or 0),
                    tokens=cache.tokens,
                    grows=cache.grows or _is_auto(loading),
                ),
            )
            for at, device in enumerate(loading.devices)
            if shares[at]
        ),
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    host: int | None
    gpus: tuple[int | None, ...]


_Places = Sequence[int | None] | None
"""The GPU of each block, then of the output; None: the CPU. None for all: it is not known."""


def _shares(loading: Loading) -> list[float]:
    """Of each GPU; they come to 1."""
    count, options = len(loading.devices), loading.options
    if options.value("--split-mode") == "none":
        main = min(number(options, "--main-gpu") or 0, count - 1)
        return [float(at == main) for at in range(count)]
    sizes = _split(options, count) or [float(d.memory_total_bytes or 0) for d in loading.devices]
    if not all(sizes) and not any(sizes):
        sizes = [1.0] * count
    return [size / sum(sizes) for size in sizes]


def _split(options: Options, count: int) -> list[float] | None:
    written = (options.value("--tensor-split") or "").replace("/", ",").split(",")
    try:
        sizes = [max(float(part), 0.0) for part in written]
    except ValueError:
        return None
    sizes = (sizes + [0.0] * count)[:count]
    return sizes if any(sizes) else None


def _is_auto(loading: Loading) -> bool:
    """Whether the engine itself chooses the layers, by what is free."""
    return loading.options.value("--n-gpu-layers") in (None, "auto", "-1") and knows_fit(loading)


def _takes_all(loading: Loading) -> bool:
    """Whether all layers go to GPUs, however many there are."""
    asked = number(loading.options, "--n-gpu-layers")
    return not _is_auto(loading) and (asked is None or asked >= _MORE_THAN_ALL)


def _places(loading: Loading, shares: Sequence[float]) -> _Places:
    layers = loading.info.layers
    blocks = len(layers.blocks) if layers is not None else loading.info.block_count
    if blocks is None or _is_auto(loading):
        return None
    asked = number(loading.options, "--n-gpu-layers")
    on_gpus = blocks + 1 if asked is None else min(asked, blocks + 1)
    first = blocks + 1 - on_gpus
    ends = list(accumulate(shares))
    return [
        None if at < first else min(bisect_right(ends, (at - first) / on_gpus), len(ends) - 1)
        for at in range(blocks + 1)
    ]


def _weights(loading: Loading, shares: Sequence[float], places: _Places) -> _Weights:
    layers, size_bytes = loading.info.layers, loading.size_bytes
    moved = any(loading.options.value(flag) or loading.options.says(flag) for flag in _MOVED)
    if moved or not size_bytes:
        return _Weights(None, (None,) * len(shares))
    if layers is not None and places is not None:
        return _placed(loading, layers, places, shares)
    if _takes_all(loading):
        return _Weights(0, tuple(int(size_bytes * share) for share in shares))
    return _Weights(None, (None,) * len(shares))


def _placed(
    loading: Loading, layers: Layers, places: Sequence[int | None], shares: Sequence[float]
) -> _Weights:
    host, gpus = layers.input_bytes, [0] * len(shares)
    copied = layers.input_bytes if layers.tied and places[-1] is not None else 0
    sizes = (*layers.blocks, layers.output_bytes + copied)
    for place, size in zip(places, sizes, strict=True):
        if place is None:
            host += size
        else:
            gpus[place] += size
    if loading.projector:
        rest = max(loading.size_bytes - layers.total_bytes, 0)
        if loading.options.says("--no-mmproj-offload"):
            host += rest
        else:
            gpus[0] += rest
    if loading.options.value("--split-mode") in ("row", "tensor"):
        gpus = [int(sum(gpus) * share) for share in shares]
    return _Weights(host, tuple(gpus))


def _parts(loading: Loading, shares: Sequence[float], places: _Places) -> Sequence[float] | None:
    """Of the cache, on each GPU: it lies where its blocks do. None: not known."""
    if loading.options.says("--no-kv-offload"):
        return [0.0] * len(shares)
    if places is not None:
        blocks = places[:-1]
        return [
            sum(place == at for place in blocks) / max(len(blocks), 1) for at in range(len(shares))
        ]
    return shares if _takes_all(loading) else None


def _part(size_bytes: int | None, part: float | None) -> int | None:
    return None if size_bytes is None or part is None else round(size_bytes * part)


def _buffers(loading: Loading, tokens: int) -> int:
    batch = number(loading.options, "--ubatch-size") or _BATCH_TOKENS
    return min(batch, tokens or batch) * (2 * tokens + 64 * (loading.info.embedding_length or 0))
