"""Whole launches, as data: `golden/*.json` says what a spec becomes.

{"spec": {...}, "files": {...}, "info": a key of INFOS, "build": "…", "gpus": [{...}], "launch":
{...}}; instead of a launch {"refused": "…"}
After a wanted change: `python -m tests.backend.test_golden`, then read the diff.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.backend import llama_cpp_python as llama_cpp_python_adapter
from reconciler.backend import llama_server as llama_server_adapter
from reconciler.backend import vllm as vllm_adapter
from reconciler.backend import xllamacpp as xllamacpp_adapter
from reconciler.backend.flags import Flags, parse_help
from reconciler.backend.launch import Launch
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.site import Site
from reconciler.errors import Rejected
from reconciler.plan.desired import ModelType, SecretRef
from tests.backend.build import (
    EMBEDDER,
    HELP,
    LLM,
    RERANKER,
    files,
    gpu,
    llama_cpp_python,
    llama_server,
    model,
    vllm,
    xllamacpp,
)

FOLDER = Path(__file__).parent / "golden"
CASES = sorted(FOLDER.glob("*.json"))
BEFORE_THE_RENAME = HELP.replace(
    "--ui,  --webui, --no-ui, --no-webui     whether", "--no-webui whether"
)
BASE = {"PATH": "/usr/bin", "HOME": "/root", "VLLM_PORT": "tcp://10.0.0.1:80", "LANG": "C.UTF-8"}

ADAPTERS = {
    "llama-server": (llama_server_adapter, llama_server()),
    "llama-server of before the flag --no-ui": (
        llama_server_adapter,
        llama_server(parse_help(BEFORE_THE_RENAME)),
    ),
    "llama-server with an unknown help": (llama_server_adapter, llama_server(Flags())),
    **{
        f"llama-server-{kind}": (llama_server_adapter, llama_server(kind=kind))
        for kind in ("cuda", "rocm")
    },
    "llama-server-cuda with an unknown help": (
        llama_server_adapter,
        llama_server(Flags(), kind="cuda"),
    ),
    "llama-server-vulkan": (
        llama_server_adapter,
        llama_server(
            kind="vulkan",
            listed=(
                "Intel(R) UHD Graphics 770 (ADL-S GT1)",
                "AMD Radeon RX 7900 XTX (RADV NAVI31)",
                "AMD Radeon RX 7900 XTX (RADV NAVI31)",
                "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)",
            ),
        ),
    ),
    "xllamacpp": (xllamacpp_adapter, xllamacpp()),
    "llama-cpp-python 0.3.36": (llama_cpp_python_adapter, llama_cpp_python()),
    "llama-cpp-python 0.3.2": (
        llama_cpp_python_adapter,
        llama_cpp_python("0.3.2", "chat_template_kwargs"),
    ),
    **{
        f"vllm-{kind} {version}": (vllm_adapter, vllm(f"vllm-{kind}", version))
        for kind in ("cuda", "rocm", "cpu")
        for version in ("0.10.0", "0.10.1", "0.15.1", "0.17.0", "0.18.0", "0.32.0", "0.33.0")
    },
    **{
        f"v{version}, a vllm-cuda of that name": (
            vllm_adapter,
            replace(
                vllm("vllm-cuda", version),
                name=f"v{version}",
                command=(f"/opt/vllm-{version}/bin/vllm", "serve"),
                programs=f"/opt/vllm-{version}/bin",
            ),
        )
        for version in ("0.10.0", "0.18.0")
    },
    "vllm-cuda 0.32.0 without its command": (
        vllm_adapter,
        replace(
            vllm("vllm-cuda", "0.32.0"),
            command=("/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"),
        ),
    ),
}
INFOS = {
    "llm": LLM,
    "embedder": EMBEDDER,
    "reranker": RERANKER,
    "reranker that could generate": replace(LLM, pooling="rank", scores=True),
    "whisper": ModelInfo(architecture="WhisperForConditionalGeneration"),
    "safetensors": ModelInfo(architecture="LlamaForCausalLM", context_length=131072),
}


def launched(case: dict[str, Any]) -> Launch:
    adapter, build = ADAPTERS[case["build"]]
    spec = dict(case["spec"])
    env = {
        name: SecretRef(**value) if isinstance(value, dict) else value
        for name, value in spec.pop("env", {}).items()
    }
    site = Site(
        port=18001,
        api_key="the-key",
        environment=BASE,
        secrets={"TOKEN": "the-secret"},
        devices=tuple(gpu(**each) for each in case.get("gpus", [])),
        shared_cache="/data/engines",
    )
    made: Launch = adapter.launch(
        model(type=ModelType(spec.pop("type", "llm")), env=env, **spec),
        files(**case.get("files", {})),
        build,
        INFOS[case["info"]],
        site,
    )
    return made


def shown(launch: Launch) -> dict[str, Any]:
    """As JSON; a JSON text at the end of argv is shown as what it means."""
    argv: list[Any] = list(launch.argv)
    if argv[-1].startswith("{") and "model.path" in argv[-1]:
        argv[-1] = json.loads(argv[-1])
    return {
        "backend": launch.backend,
        "argv": argv,
        "env": dict(sorted(launch.env.items())),
        "address": f"{launch.host}:{launch.port}",
        "answer": [launch.probe.answer_path, dict(launch.probe.answer_body)],
        **({"file": "sent"} if launch.probe.answer_file is not None else {}),
        **({"sockets": list(launch.socket_variables)} if launch.socket_variables else {}),
        "warnings": list(launch.warnings),
    }


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"launch": shown(launched(case))}
    except Rejected as exc:
        return {"refused": str(exc)}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_spec_becomes_this_launch(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    assert outcome(case) == {key: case[key] for key in ("launch", "refused") if key in case}


def test_no_secret_stands_in_an_argv_or_in_what_is_logged() -> None:
    for path in CASES:
        case = json.loads(path.read_text(encoding="utf-8"))
        if "refused" in case:
            continue
        launch = launched(case)
        assert not any("the-key" in word or "the-secret" in word for word in launch.argv)
        assert "the-key" not in repr(launch)
        assert "the-secret" not in repr(launch)


def rewrite() -> None:
    for path in CASES:
        case = json.loads(path.read_text(encoding="utf-8"))
        case = {key: case[key] for key in case if key not in ("launch", "refused")}
        case |= outcome(case)
        path.write_text(json.dumps(case, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    rewrite()
