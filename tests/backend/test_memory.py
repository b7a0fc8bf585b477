"""What engines need of memory, by what the files say and the manifest asks."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.backend import (
    llama_gpu_memory,
    llama_memory,
    llama_server,
    vllm,
    vllm_memory,
    xllamacpp,
)
from reconciler.backend.flags import Flags, parse_help
from reconciler.backend.inventory import VLLM_CUDA, Build
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import Layers, ModelInfo
from reconciler.plan.desired import SecretRef
from reconciler.plan.gpus import Gpu
from reconciler.plan.memory import HOST, Need, pool_of
from tests.backend import build
from tests.backend.build import HELP

MIB, GIB = 1 << 20, 1 << 30
LLAMA = ModelInfo(architecture="llama", context_length=32768, kv_bytes_per_token=131072)
FIXED = replace(LLAMA, context_length=8192)
PROMPTS = 512 * MIB


def llama(
    info: ModelInfo = FIXED,
    *,
    flags: Flags = build.HELP_FLAGS,
    machine_bytes: int | None = 64 * GIB,
    size_bytes: int = 4 * GIB,
    **fields: Any,
) -> Need:
    spec, engine = build.spec(**fields), build.llama_server(flags)
    return llama_memory.needs(
        Loading(
            spec=spec,
            size_bytes=size_bytes,
            info=info,
            build=engine,
            options=llama_server.check(spec, "/", info, engine),
            machine_bytes=machine_bytes,
        )
    )[HOST]


def test_a_llama_needs_its_weights_the_cache_of_its_whole_context_and_little_else() -> None:
    assert llama() == Need(
        weights_bytes=4 * GIB,
        kv_cache_bytes=GIB,
        overhead_bytes=llama_memory.PROCESS_BYTES + PROMPTS,
        tokens=8192,
        mapped_bytes=4 * GIB,
    )


@pytest.mark.parametrize(
    ("extra_args", "cache_bytes"),
    [
        ({"ctx_size": 16384}, 2 * GIB),
        ({"ctx_size": 100}, 256 * 131072),
        ({"ctx_size": 16384, "parallel": 8}, 2 * GIB),
        ({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, GIB * 17 // 32),
        ({"cache_type_k": "f32"}, GIB * 3 // 2),
        ({"cache_type_v": "q4_0"}, GIB * 41 // 64),
    ],
)
def test_the_cache_is_what_the_manifest_asks_for(
    extra_args: dict[str, Any], cache_bytes: int
) -> None:
    assert llama(extra_args=extra_args).kv_cache_bytes == cache_bytes


@pytest.mark.parametrize(
    ("extra_args", "prompts_bytes"),
    [({"cache_ram": 2048}, 2 * GIB), ({"cache_ram": 0}, 0), ({"cache_ram": -1}, 0)],
)
def test_prompts_that_are_kept_count(extra_args: dict[str, Any], prompts_bytes: int) -> None:
    assert llama(extra_args=extra_args).overhead_bytes == (
        llama_memory.PROCESS_BYTES + prompts_bytes
    )


@pytest.mark.parametrize(
    "extra_args", [{"no_mmap": True}, {"mmap": False}, {"mlock": True}, {"load_mode": "none"}]
)
def test_weights_that_are_not_mapped_are_the_process_s_own(extra_args: dict[str, Any]) -> None:
    assert llama(extra_args=extra_args).mapped_bytes == 0
    assert llama(extra_args={"load_mode": "mmap"}).mapped_bytes == 4 * GIB


def test_the_engine_makes_a_context_that_nobody_asked_for_smaller_by_itself() -> None:
    """`--fit`: to what the whole machine has, less a margin, and to 4,096 tokens at least."""
    whole = 32768 * 131072
    assert llama(LLAMA, machine_bytes=64 * GIB).kv_cache_bytes == whole
    beside = 4 * GIB + llama_memory.PROCESS_BYTES + PROMPTS
    assert llama(LLAMA, machine_bytes=beside + 3 * GIB).kv_cache_bytes == 2 * GIB
    tight = {"fit_target": 3072}
    assert llama(LLAMA, machine_bytes=beside + 4 * GIB, extra_args=tight).tokens == 8192
    assert llama(LLAMA, machine_bytes=GIB).tokens == 4096
    assert llama(LLAMA, machine_bytes=GIB, extra_args={"fit_ctx": 512}).tokens == 512
    assert llama(LLAMA, machine_bytes=GIB, flags=Flags()).tokens == 4096


@pytest.mark.parametrize("extra_args", [{"fit": False}, {"ctx_size": 32768}])
def test_a_context_that_was_asked_for_stays(extra_args: dict[str, Any]) -> None:
    assert llama(LLAMA, machine_bytes=GIB, extra_args=extra_args).tokens == 32768


def test_an_engine_that_cannot_do_so_has_all_of_the_context() -> None:
    old = "\n".join(line for line in HELP.splitlines() if not line.startswith("-fit"))
    assert llama(LLAMA, machine_bytes=GIB, flags=parse_help(old)).tokens == 32768


def test_no_number_is_made_up() -> None:
    need = llama(replace(FIXED, kv_bytes_per_token=None), size_bytes=0)
    assert (need.weights_bytes, need.kv_cache_bytes, need.is_whole) == (None, None, False)
    assert llama(replace(FIXED, context_length=None)).kv_cache_bytes is None


def test_an_encoder_has_no_cache() -> None:
    need = llama(build.EMBEDDER, type="embedding")
    assert (need.kv_cache_bytes, need.tokens) == (0, None)
    assert need.overhead_bytes == llama_memory.PROCESS_BYTES


def test_the_wheel_s_server_needs_the_same() -> None:
    spec, engine = build.spec(extra_args={"ctx_size": 16384}), build.xllamacpp()
    loading = Loading(
        spec=spec,
        size_bytes=4 * GIB,
        info=FIXED,
        build=engine,
        options=xllamacpp.check(spec, "/", FIXED, engine),
    )
    assert llama_memory.needs(loading)[HOST] == llama(extra_args={"ctx_size": 16384})


FIELDS = ("env", "gpu_memory", "pipeline_parallel_size")


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


LAYERS = Layers(blocks=(100 * MIB,) * 10, input_bytes=300 * MIB, output_bytes=200 * MIB, tied=False)
LAYERED = replace(FIXED, layers=LAYERS, embedding_length=4096)
TIED = replace(LAYERED, layers=replace(LAYERS, output_bytes=MIB, tied=True))
BUFFERS = 512 * (2 * 8192 + 64 * 4096)
CUDA = build.llama_server(kind="cuda")
FIRST, SECOND = build.gpu(0, uuid="GPU-0"), build.gpu(1, uuid="GPU-1")


def spread(
    info: ModelInfo = LAYERED,
    *,
    gpus: tuple[Gpu, ...] = (FIRST,),
    size_bytes: int = 1500 * MIB,
    projector: bool = False,
    **args: Any,
) -> dict[str, Need]:
    spec = build.spec(extra_args={"ctx_size": 8192, **args})
    loading = Loading(
        spec=spec,
        size_bytes=size_bytes,
        projector=projector,
        info=info,
        build=CUDA,
        options=llama_server.check(spec, "/", info, CUDA, gpus),
        devices=gpus,
    )
    return {str(pool): need for pool, need in llama_memory.needs(loading).items()}


def in_mib(needs: dict[str, Need]) -> dict[str, tuple[int | None, int | None]]:
    """Weights and KV cache of each."""

    def mib(size: int | None) -> int | None:
        return None if size is None else size // MIB

    return {
        pool: (mib(need.weights_bytes), mib(need.kv_cache_bytes)) for pool, need in needs.items()
    }


def test_a_whole_llama_is_on_its_gpu_but_for_the_embedding_of_words() -> None:
    found = spread()
    assert found["GPU-0"] == Need(
        weights_bytes=1200 * MIB,
        kv_cache_bytes=GIB,
        overhead_bytes=llama_gpu_memory.CONTEXT_BYTES + BUFFERS,
        tokens=8192,
    )
    assert found[HOST] == Need(
        weights_bytes=300 * MIB,
        kv_cache_bytes=0,
        overhead_bytes=llama_memory.PROCESS_BYTES + PROMPTS,
        mapped_bytes=300 * MIB,
    )
    assert in_mib(spread(TIED))["GPU-0"] == (1301, 1024)


ALL = (1200, 1024)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"n_gpu_layers": 4}, {"host": (1000, 716), "GPU-0": (500, 307)}),
        ({"n_gpu_layers": 1}, {"host": (1300, 1024), "GPU-0": (200, 0)}),
        ({"n_gpu_layers": 0}, {"host": (1500, 1024), "GPU-0": (0, 0)}),
        ({"n_gpu_layers": 99}, {"host": (300, 0), "GPU-0": ALL}),
        ({"n_gpu_layers": "all"}, {"host": (300, 0), "GPU-0": ALL}),
        ({"n_gpu_layers": "auto"}, {"host": (None, None), "GPU-0": (None, None)}),
        ({"n_gpu_layers": "auto", "fit": False}, {"host": (300, 0), "GPU-0": ALL}),
        ({"kv_offload": False}, {"host": (300, 1024), "GPU-0": (1200, 0)}),
        ({"n_cpu_moe": 4}, {"host": (None, 0), "GPU-0": (None, 1024)}),
        ({"cpu_moe": True}, {"host": (None, 0), "GPU-0": (None, 1024)}),
        (
            {"cache_type_k": "q8_0", "cache_type_v": "q8_0"},
            {"host": (300, 0), "GPU-0": (1200, 544)},
        ),
    ],
)
def test_what_stays_on_the_cpu_is_the_host_s(
    args: dict[str, Any], expected: dict[str, tuple[int | None, int | None]]
) -> None:
    assert in_mib(spread(**args)) == expected


PAIR = (FIRST, SECOND)


@pytest.mark.parametrize(
    ("args", "first", "second"),
    [
        ({}, (600, 614), (600, 409)),
        ({"tensor_split": [3, 1]}, (900, 921), (300, 102)),
        ({"tensor_split": "0,1"}, None, ALL),
        ({"split_mode": "none"}, ALL, None),
        ({"split_mode": "none", "main_gpu": 1}, None, ALL),
        ({"split_mode": "row", "tensor_split": [3, 1]}, (900, 921), (300, 102)),
        ({"n_gpu_layers": 4}, (200, 204), (300, 102)),
    ],
)
def test_layers_are_cut_over_gpus_as_the_engine_cuts_them(
    args: dict[str, Any], first: tuple[int, int] | None, second: tuple[int, int] | None
) -> None:
    """11 layers over two: six blocks, and four with the output."""
    found = in_mib(spread(gpus=PAIR, **args))
    assert (found.get("GPU-0"), found.get("GPU-1")) == (first, second)


def test_a_projector_is_on_the_first_gpu() -> None:
    whole = spread(size_bytes=1600 * MIB, projector=True)
    assert in_mib(whole)["GPU-0"] == (1300, 1024)
    kept = in_mib(spread(size_bytes=1600 * MIB, projector=True, mmproj_offload=False))
    assert (kept["GPU-0"], kept[HOST]) == (ALL, (400, 0))


def test_of_what_a_catalog_tells_all_goes_to_the_gpus() -> None:
    told = replace(FIXED, layers=None)
    assert in_mib(spread(told, gpus=PAIR)) == {
        "host": (0, 0),
        "GPU-0": (750, 512),
        "GPU-1": (750, 512),
    }
    assert in_mib(spread(told, n_gpu_layers=4))["GPU-0"] == (None, None)


def test_a_context_that_nobody_asked_for_needs_the_least_that_the_engine_does_with() -> None:
    long = replace(LAYERED, context_length=131072)
    need = spread(long, ctx_size=0)["GPU-0"]
    assert (need.tokens, need.kv_cache_bytes, need.grows) == (4096, GIB // 2, True)
    assert "KV cache 512 MiB for 4,096 tokens and more where there is room" in str(need)
    asked = spread(long, ctx_size=131072)["GPU-0"]
    assert (asked.tokens, asked.kv_cache_bytes, asked.grows) == (131072, 16 * GIB, False)
    assert spread(long, ctx_size=0, fit=False)["GPU-0"].tokens == 131072


def test_a_gpu_in_the_machine_s_memory_is_counted_once() -> None:
    apu = replace(FIRST, unified=True)
    found = spread(gpus=(apu,))
    assert in_mib(found) == {HOST: (1500, 1024)}
    assert found[HOST].mapped_bytes == 300 * MIB
