from reconciler.backend import llama_cpp_python, llama_cpp_python_memory, llama_memory
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import ModelInfo
from reconciler.plan.memory import HOST, Need
from tests.backend import build

MIB, GIB = 1 << 20, 1 << 30


def need(**extra_args: int) -> Need:
    spec, engine = build.spec(extra_args=extra_args), build.llama_cpp_python()
    info = ModelInfo(architecture="llama", context_length=32768, kv_bytes_per_token=131072)
    loading = Loading(
        spec=spec,
        size_bytes=4 * GIB,
        info=info,
        build=engine,
        options=llama_cpp_python.check(spec, "/", info, engine),
        machine_bytes=64 * GIB,
    )
    return llama_cpp_python_memory.needs(loading)[HOST]


def test_it_needs_the_weights_the_cache_of_its_own_context_and_python() -> None:
    assert need() == Need(
        weights_bytes=4 * GIB,
        kv_cache_bytes=256 * MIB,
        overhead_bytes=llama_memory.PROCESS_BYTES + llama_cpp_python_memory.PYTHON_BYTES,
        tokens=2048,
        mapped_bytes=4 * GIB,
    )


def test_what_is_asked_for_counts() -> None:
    assert need(n_ctx=8192).kv_cache_bytes == GIB
    assert need(ctx_size=0).kv_cache_bytes == 4 * GIB
    assert need(mlock=True).mapped_bytes == 0
