"""What a llama.cpp on the CPU needs of memory, by what the files say and the manifest asks."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.backend import llama_memory, llama_server, xllamacpp
from reconciler.backend.flags import Flags, parse_help
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import ModelInfo
from reconciler.plan.memory import HOST, Need
from reconciler.plan.windows import Windows
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


WINDOWED = ModelInfo(
    architecture="gemma3",
    context_length=32768,
    windows=Windows(layer_bytes=1024, full_layers=3, windowed_layers=15, window_tokens=512),
)


@pytest.mark.parametrize(
    ("extra_args", "kept"),
    [
        ({}, 4 * 512 + 512),
        ({"ubatch_size": 100}, 4 * 512 + 256),
        ({"parallel": 1}, 512 + 512),
        ({"parallel": 2}, 2 * (512 + 512)),
        ({"parallel": 2, "kv_unified": True}, 2 * 512 + 512),
        ({"swa_full": True}, 65536),
    ],
)
def test_layers_with_a_window_keep_no_more_than_it_and_a_batch(
    extra_args: dict[str, Any], kept: int
) -> None:
    need = llama(WINDOWED, extra_args={"ctx_size": 65536, **extra_args})
    assert need.kv_cache_bytes == 65536 * 3072 + kept * 15360


def test_a_context_shorter_than_the_windows_is_kept_as_a_whole() -> None:
    assert llama(WINDOWED, extra_args={"ctx_size": 512}).kv_cache_bytes == 512 * (3072 + 15360)


def test_windows_leave_more_room_for_a_context_that_nobody_asked_for() -> None:
    beside = 4 * GIB + llama_memory.PROCESS_BYTES + PROMPTS + GIB
    room = 8192 * 3072 + 2560 * 15360
    assert llama(WINDOWED, machine_bytes=beside + room).tokens == 8192


def test_a_context_without_bounds_is_known_to_be_too_large() -> None:
    need = llama(WINDOWED, extra_args={"ctx_size": 999999999})
    assert need.is_whole
    assert (need.kv_cache_bytes or 0) > 2**40


def test_builds_that_do_not_know_windows_keep_the_whole_context_in_all_layers() -> None:
    old = parse_help("\n".join(line for line in HELP.splitlines() if "--swa-full" not in line))
    need = llama(WINDOWED, flags=old, extra_args={"ctx_size": 4096})
    assert need.kv_cache_bytes == 4096 * (3072 + 15360)


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
