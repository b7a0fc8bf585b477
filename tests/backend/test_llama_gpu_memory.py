"""What a llama.cpp on GPUs needs of the memory of each, and of the host's."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.backend import llama_gpu_memory, llama_memory, llama_server
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import Layers, ModelInfo
from reconciler.plan.gpus import Gpu
from reconciler.plan.memory import HOST, Need
from tests.backend import build

MIB, GIB = 1 << 20, 1 << 30
FIXED = ModelInfo(architecture="llama", context_length=8192, kv_bytes_per_token=131072)
PROMPTS = 512 * MIB
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
