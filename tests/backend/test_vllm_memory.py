"""What a vLLM needs of memory, on the CPU and of each GPU."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.backend import vllm, vllm_memory
from reconciler.backend.inventory import VLLM_CUDA, VLLM_ROCM, Build
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import ModelInfo
from reconciler.plan.desired import ModelType, SecretRef
from reconciler.plan.gpus import Gpu
from reconciler.plan.memory import HOST, Need, pool_of
from reconciler.plan.windows import Windows
from tests.backend import build

MIB, GIB = 1 << 20, 1 << 30
FIELDS = ("env", "gpu_memory", "pipeline_parallel_size", "type")


def vllm_need(
    engine: Build | None = None,
    devices: tuple[Gpu, ...] = (),
    stored: str = "bfloat16",
    info: ModelInfo | None = None,
    machine_bytes: int | None = None,
    **args: Any,
) -> Need:
    engine = engine or build.vllm()
    said = {key: args.pop(key) for key in FIELDS if key in args}
    spec = build.spec(source="huggingface/org_name", extra_args=args, **said)
    info = info or ModelInfo(weights_bytes=8 * GIB, dtype=stored)
    loading = Loading(
        spec=spec,
        size_bytes=0,
        info=info,
        build=engine,
        options=vllm.check(spec, "/", info, engine, devices),
        devices=devices,
        machine_bytes=machine_bytes,
    )
    return vllm_memory.needs(loading)[pool_of(devices[0]) if devices else HOST]


def test_a_vllm_on_the_cpu_needs_its_weights_and_the_cache_that_it_is_told_to_make() -> None:
    assert vllm_need() == Need(
        weights_bytes=8 * GIB,
        kv_cache_bytes=4 * GIB,
        overhead_bytes=vllm_memory.PROCESS_BYTES,
    )
    assert vllm_need(kv_cache_memory_bytes="256M").kv_cache_bytes == 256 * MIB
    assert vllm_need(kv_cache_memory_bytes="2g").kv_cache_bytes == 2_000_000_000
    assert vllm_need(kv_cache_memory_bytes=1073741824).kv_cache_bytes == GIB


def test_an_older_vllm_is_told_by_a_variable() -> None:
    old = build.vllm(version="0.17.0")
    assert vllm_need(old).kv_cache_bytes == 4 * GIB
    assert vllm_need(old, env={"VLLM_CPU_KVCACHE_SPACE": "1"}).kv_cache_bytes == GIB
    reference = {"VLLM_CPU_KVCACHE_SPACE": SecretRef(from_env="SPACE")}
    assert vllm_need(old, env=reference).kv_cache_bytes is None


def test_weights_in_32_bits_are_loaded_in_16_unless_that_is_asked_for() -> None:
    assert vllm_need(stored="float32").weights_bytes == 4 * GIB
    assert vllm_need(stored="float32", dtype="float32").weights_bytes == 8 * GIB


def test_a_vllm_on_a_gpu_takes_its_share_whatever_the_model_needs() -> None:
    cuda, pair = build.vllm(VLLM_CUDA), (build.gpu(0), build.gpu(1))
    need = vllm_need(cuda, pair, gpu_memory="0.5")
    assert need == Need(weights_bytes=4 * GIB, claimed_bytes=40 * GIB)
    assert (need.total_bytes, need.own_bytes, need.is_whole) == (40 * GIB, 40 * GIB, True)
    assert str(need) == (
        "40.0 GiB of memory (weights 4.0 GiB, the rest of its share for the KV cache)"
    )
    assert vllm_need(cuda, pair[:1]).claimed_bytes == 72 * GIB


def test_a_vllm_that_is_told_its_cache_wants_its_share_free_and_does_not_take_it() -> None:
    """request_memory comes before kv_cache_memory_bytes is looked at."""
    need = vllm_need(build.vllm(VLLM_CUDA), (build.gpu(0),), kv_cache_memory_bytes="8G")
    assert need == Need(weights_bytes=8 * GIB, kv_cache_bytes=8 * GIB, checked_bytes=72 * GIB)
    assert (need.total_bytes, need.own_bytes) == (72 * GIB, 16 * GIB)
    assert str(need) == (
        "72.0 GiB of memory (weights 8.0 GiB, KV cache 8.0 GiB, 72.0 GiB have to be free at its "
        "start)"
    )


CONTEXT = ModelInfo(
    weights_bytes=8 * GIB, context_length=32768, kv_bytes_per_token=131072, kv_heads=2
)


@pytest.mark.parametrize(
    ("gpus", "args", "cache_bytes"),
    [
        (1, {}, 4 * GIB),
        (1, {"max_model_len": "16K"}, 2 * GIB),
        (1, {"max_model_len": 8192}, GIB),
        (1, {"max_model_len": "auto"}, None),
        (1, {"kv_cache_dtype": "fp8"}, 2 * GIB),
        (1, {"kv_cache_dtype": "nvfp4"}, None),
        (2, {}, 2 * GIB),
        (4, {}, 2 * GIB),
        (4, {"pipeline": 2}, GIB),
    ],
)
def test_the_cache_of_one_full_context_is_spread_over_gpus_no_further_than_its_heads(
    gpus: int, args: dict[str, Any], cache_bytes: int | None
) -> None:
    fields = {"pipeline_parallel_size": args.pop("pipeline")} if "pipeline" in args else {}
    devices = tuple(build.gpu(at) for at in range(gpus))
    need = vllm_need(build.vllm(VLLM_CUDA), devices, info=CONTEXT, **fields, **args)
    assert need.kv_cache_bytes == cache_bytes
    assert need.weights_bytes == 8 * GIB // gpus


def test_weights_and_one_full_context_must_fit_into_the_share() -> None:
    one = (build.gpu(0),)
    small = vllm_need(build.vllm(VLLM_CUDA), one, info=CONTEXT, gpu_memory="0.14")
    assert (small.overflows, small.claimed_bytes) == (True, int(0.14 * 80 * GIB))
    assert not vllm_need(build.vllm(VLLM_CUDA), one, info=CONTEXT, gpu_memory="0.16").overflows
    moved = vllm_need(build.vllm(VLLM_CUDA), one, info=CONTEXT, gpu_memory="0.14", cpu_offload_gb=2)
    assert (moved.weights_bytes, moved.overflows) == (6 * GIB, False)


def test_what_works_in_the_machine_s_memory_claims_that() -> None:
    spark = replace(build.gpu(0), unified=True, memory_total_bytes=None)
    need = vllm_need(build.vllm(VLLM_CUDA), (spark,), gpu_memory="0.5", machine_bytes=128 * GIB)
    assert need.claimed_bytes == 64 * GIB


MODEL = ModelInfo(
    weights_bytes=8 * GIB,
    context_length=131072,
    windows=Windows(layer_bytes=8192, full_layers=10, windowed_layers=52, window_tokens=1024),
    kv_heads=16,
)
"""Gemma 3 27B."""
BLOCK_BYTES = 16 * 8192
FULL_BYTES = 62 * 131072 * 8192
GROUPED_BYTES = 10 * BLOCK_BYTES * (8192 + 6 * (576 + 1))
"""10 layers that keep 8,192 blocks each, and 52 that count as 60, of (1023 + 8192) / 16 and one."""


def cache_of(
    build_of: Build | None = None, gpu: Gpu | None = None, info: ModelInfo = MODEL, **args: Any
) -> int | None:
    engine = build_of or build.vllm(VLLM_CUDA)
    return vllm_need(engine, (gpu or build.gpu(0),), info=info, **args).kv_cache_bytes


def test_layers_with_a_window_keep_it_and_a_batch_in_groups_of_one_size() -> None:
    assert cache_of() == GROUPED_BYTES
    assert cache_of(max_num_batched_tokens=2048) == 10 * BLOCK_BYTES * (8192 + 6 * (192 + 1))
    assert cache_of(max_model_len=512) == 10 * BLOCK_BYTES * (32 + 6 * (32 + 1))
    assert cache_of(kv_cache_dtype="fp8") == GROUPED_BYTES // 2
    assert cache_of(dtype="float32") == GROUPED_BYTES * 2


@pytest.mark.parametrize(
    ("gpu", "batch"),
    [
        (build.gpu(0), 8192),
        (build.gpu(0, memory_total_bytes=None), 8192),
        (build.gpu(0, memory_total_bytes=24 * GIB), 2048),
        (build.gpu(0, name="NVIDIA A100-SXM4-80GB"), 2048),
    ],
)
def test_a_batch_is_as_large_as_the_gpu_makes_it(gpu: Gpu, batch: int) -> None:
    assert cache_of(gpu=gpu) == cache_of(gpu=gpu, max_num_batched_tokens=batch)


@pytest.mark.parametrize(
    ("full", "windowed", "expected"),
    [
        (0, 32, 32 * BLOCK_BYTES * 577),
        (12, 12, 12 * BLOCK_BYTES * (8192 + 577)),
        (13, 12, 13 * BLOCK_BYTES * (8192 + 577)),
        (12, 18, 12 * BLOCK_BYTES * (8192 + 2 * 577)),
    ],
)
def test_kinds_that_are_hardly_fewer_are_filled_up(full: int, windowed: int, expected: int) -> None:
    kinds = Windows(
        layer_bytes=8192, full_layers=full, windowed_layers=windowed, window_tokens=1024
    )
    assert cache_of(info=replace(MODEL, windows=kinds)) == expected


AMD = build.gpu(0, vendor="amd", architecture="gfx942", memory_total_bytes=192 * GIB)


@pytest.mark.parametrize(
    ("engine", "gpu", "args"),
    [
        (build.vllm(VLLM_CUDA, "0.9.2"), None, {}),
        (build.vllm(VLLM_ROCM, "0.17.0"), AMD, {}),
        (None, None, {"disable_hybrid_kv_cache_manager": True}),
        (None, None, {"disable_sliding_window": True}),
        (None, None, {"enable_chunked_prefill": False}),
        (None, None, {"kv_transfer_config": {"kv_connector": "NixlConnector"}}),
        (None, None, {"kv_transfer_config.kv_connector": "NixlConnector"}),
        (None, None, {"speculative_config": {"method": "ngram"}}),
        (None, None, {"hf_overrides": {"sliding_window": 4}}),
        (build.vllm(VLLM_CUDA, "0.10.0"), None, {"env": {"VLLM_USE_V1": "0"}}),
        (None, None, {"type": ModelType.EMBEDDING}),
    ],
)
def test_where_windows_may_not_count_all_layers_keep_the_whole_context(
    engine: Build | None, gpu: Gpu | None, args: dict[str, Any]
) -> None:
    """Never to say that it fits where it does not."""
    assert cache_of(engine, gpu, **args) == FULL_BYTES


def test_windows_count_on_amd_too() -> None:
    assert cache_of(build.vllm(VLLM_ROCM), AMD) == GROUPED_BYTES
