"""Values for the tests of the engines, with defaults."""

import json
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconciler.backend.flags import Flags, parse_help
from reconciler.backend.inventory import (
    LLAMA_CPP_PYTHON,
    XLLAMACPP,
    Build,
    Inventory,
    Listed,
    Missing,
)
from reconciler.backend.llama_cpp_python import SERVER
from reconciler.backend.llama_cpp_python_params import flags_of as flags_of_settings
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.vllm_flag_lists import flags_of
from reconciler.backend.xllamacpp import CHILD
from reconciler.backend.xllamacpp_params import FLAGS
from reconciler.plan.desired import DesiredModel, Format, ModelSpec
from reconciler.plan.gpus import Gpu, Vendor
from reconciler.plan.ids import FilesDigest, GpuUuid, ModelName, Place, SpecHash
from reconciler.plan.observed import FilesCached

HELP = (Path(__file__).parent / "help" / "llama-server.txt").read_text(encoding="utf-8")
"""What a real llama-server of November 2026 printed."""
HELP_FLAGS = parse_help(HELP)
SETTINGS: dict[str, str] = json.loads(
    (Path(__file__).parent / "help" / "llama-cpp-python.json").read_text(encoding="utf-8")
)
"""Those of llama-cpp-python 0.3.36."""

LLM = ModelInfo(architecture="gemma3", kind="model", context_length=32768)
EMBEDDER = ModelInfo(
    architecture="bert", kind="model", context_length=512, pooling="cls", causal=False
)
RERANKER = replace(EMBEDDER, pooling="rank", scores=True)


def spec(**fields: Any) -> ModelSpec:
    return ModelSpec(**{"source": "gguf/google_gemma-3-270m", **fields})


def model(name: str = "gemma", **fields: Any) -> DesiredModel:
    return DesiredModel(
        name=ModelName(name),
        spec=spec(**fields),
        spec_hash=SpecHash("1:00"),
        place=Place(file="models.yaml", line=1, column=1),
    )


def files(path: str | Path = "/cache/gemma/model.gguf", **fields: Any) -> FilesCached:
    return FilesCached(
        **{
            "digest": FilesDigest("d1"),
            "path": str(path),
            "root": str(Path(path).parent),
            "format": Format.GGUF,
            **fields,
        }
    )


def llama_server(
    flags: Flags = HELP_FLAGS,
    path: str = "/opt/llama.cpp/llama-server",
    kind: str = "cpu",
    listed: Iterable[str] = (),
) -> Build:
    """`listed`: what it calls its Vulkan devices."""
    return Build(
        id=f"llama-server-{kind}",
        listed=tuple(Listed(f"Vulkan{at}", name) for at, name in enumerate(listed)),
        command=(path,),
        version="6123 (abc)",
        detail=f"{path}, version 6123 (abc)",
        flags=flags,
    )


def xllamacpp(python: str = "/opt/venv/bin/python") -> Build:
    return Build(
        id=XLLAMACPP,
        command=(python, *CHILD),
        version="2026.10",
        detail="xllamacpp 2026.10 of our own environment",
        flags=FLAGS,
    )


def llama_cpp_python(version: str = "0.3.36", *without: str) -> Build:
    """`without`: settings that this version has not."""
    path = "/opt/llama-cpp-python/bin/python"
    settings = {name: kind for name, kind in SETTINGS.items() if name not in without}
    return Build(
        id=LLAMA_CPP_PYTHON,
        command=(path, *SERVER),
        version=version,
        detail=f"{path}, llama-cpp-python {version}",
        flags=flags_of_settings(settings),
    )


def vllm(id: str = "vllm-cpu", version: str | None = "0.32.0") -> Build:
    return Build(
        id=id,
        command=("/opt/vllm/bin/vllm", "serve"),
        version=version,
        detail=f"/opt/vllm/bin/vllm, vLLM {version}",
        flags=flags_of(version),
    )


def gpu(index: int = 0, **fields: Any) -> Gpu:
    """An NVIDIA H100 of 80 GiB unless `fields` say otherwise."""
    return Gpu(
        **{
            "vendor": Vendor(fields.pop("vendor", "nvidia")),
            "uuid": GpuUuid(f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd"),
            "pci": f"0000:0{index}:00.0",
            "name": f"GPU {index}",
            "memory_total_bytes": 80 * 1024**3,
            "order": index,
            "index": index,
            **fields,
        }
    )


def executable(path: Path, body: str, interpreter: str) -> Path:
    path.write_text(f"#!{interpreter}\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def inventory(*builds: Build, **missing: str) -> Inventory:
    """`missing`: reasons by backend, with underscores for dashes."""
    gaps = (Missing(id=id.replace("_", "-"), reason=reason) for id, reason in missing.items())
    return Inventory(builds=builds, missing=tuple(gaps))
