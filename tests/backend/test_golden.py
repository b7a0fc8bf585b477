"""Whole launches, as data: `golden/*.json` says what a spec becomes.

{"spec": {...}, "files": {...}, "info": a key of INFOS, "build": "…", "launch": {...}}
After a wanted change: `python -m tests.backend.test_golden`, then read the diff.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.backend import llama_server as llama_server_adapter
from reconciler.backend import xllamacpp as xllamacpp_adapter
from reconciler.backend.flags import Flags, parse_help
from reconciler.backend.launch import Launch
from reconciler.plan.desired import ModelType, SecretRef
from tests.backend.build import (
    EMBEDDER,
    HELP,
    LLM,
    RERANKER,
    files,
    llama_server,
    model,
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
    "xllamacpp": (xllamacpp_adapter, xllamacpp()),
}
INFOS = {
    "llm": LLM,
    "embedder": EMBEDDER,
    "reranker": RERANKER,
    "reranker that could generate": replace(LLM, pooling="rank", scores=True),
}


def launched(case: dict[str, Any]) -> Launch:
    adapter, build = ADAPTERS[case["build"]]
    spec = dict(case["spec"])
    env = {
        name: SecretRef(**value) if isinstance(value, dict) else value
        for name, value in spec.pop("env", {}).items()
    }
    made: Launch = adapter.launch(
        model(type=ModelType(spec.pop("type", "llm")), env=env, **spec),
        files(**case.get("files", {})),
        build,
        INFOS[case["info"]],
        port=18001,
        api_key="the-key",
        base_environment=BASE,
        secrets={"TOKEN": "the-secret"},
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
        "warnings": list(launch.warnings),
    }


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_spec_becomes_this_launch(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    assert shown(launched(case)) == case["launch"]


def test_no_secret_stands_in_an_argv_or_in_what_is_logged() -> None:
    for path in CASES:
        launch = launched(json.loads(path.read_text(encoding="utf-8")))
        assert not any("the-key" in word or "the-secret" in word for word in launch.argv)
        assert "the-key" not in repr(launch)
        assert "the-secret" not in repr(launch)


def rewrite() -> None:
    for path in CASES:
        case = json.loads(path.read_text(encoding="utf-8"))
        case["launch"] = shown(launched(case))
        path.write_text(json.dumps(case, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    rewrite()
