"""What each engine's module does for the one door to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.backend import (
    llama_cpp_python,
    llama_cpp_python_memory,
    llama_memory,
    llama_options,
    llama_server,
    vllm,
    vllm_memory,
    vllm_options,
    xllamacpp,
)
from reconciler.backend.inventory import (
    LLAMA_CPP_PYTHON,
    LLAMA_SERVER_CPU,
    LLAMA_SERVER_CUDA,
    LLAMA_SERVER_ROCM,
    LLAMA_SERVER_VULKAN,
    VLLM_CPU,
    VLLM_CUDA,
    VLLM_ROCM,
    XLLAMACPP,
    Build,
)
from reconciler.backend.launch import Launch
from reconciler.backend.loading import Loading
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Options
from reconciler.backend.site import Site
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.gpus import Gpu
from reconciler.plan.memory import Needs
from reconciler.plan.observed import FilesCached


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """What an engine's module offers. `need_fit`: whether the files are of the model's type;
    `check`: whether it can be told what the manifest says. Both raise Rejected. `needs`: of memory.
    """

    need_fit: Callable[[ModelSpec, str, ModelInfo], None]
    check: Callable[[ModelSpec, str, ModelInfo, Build, Sequence[Gpu]], Options]
    needs: Callable[[Loading], Needs]
    launch: Callable[[DesiredModel, FilesCached, Build, ModelInfo, Site], Launch]


_VLLM = Adapter(
    need_fit=vllm_options.need_fit,
    check=vllm.check,
    needs=vllm_memory.needs,
    launch=vllm.launch,
)
_LLAMA_SERVER = Adapter(
    need_fit=llama_options.need_fit,
    check=llama_server.check,
    needs=llama_memory.needs,
    launch=llama_server.launch,
)
ADAPTERS: Mapping[str, Adapter] = {
    LLAMA_SERVER_CUDA: _LLAMA_SERVER,
    LLAMA_SERVER_ROCM: _LLAMA_SERVER,
    LLAMA_SERVER_VULKAN: _LLAMA_SERVER,
    LLAMA_SERVER_CPU: _LLAMA_SERVER,
    XLLAMACPP: Adapter(
        need_fit=llama_options.need_fit,
        check=xllamacpp.check,
        needs=llama_memory.needs,
        launch=xllamacpp.launch,
    ),
    LLAMA_CPP_PYTHON: Adapter(
        need_fit=llama_cpp_python.need_fit,
        check=llama_cpp_python.check,
        needs=llama_cpp_python_memory.needs,
        launch=llama_cpp_python.launch,
    ),
    VLLM_CUDA: _VLLM,
    VLLM_ROCM: _VLLM,
    VLLM_CPU: _VLLM,
}
