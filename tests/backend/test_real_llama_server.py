"""With a real llama-server: what it says of itself, and what it does with our flags.

Nothing here needs it to compute: prebuilt binaries may trap on this machine's CPU.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.builds import discovery
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import Build
from reconciler.backend.launch import Launch
from reconciler.backend.xllamacpp_params import PARAMETERS
from reconciler.plan.desired import ModelType
from tests.backend.build import files, inventory, model
from tests.backend.served import free_port, served
from tests.gguf_file import header
from tests.llama_server import llama_server, needs_llama_server

pytestmark = [pytest.mark.engine, needs_llama_server]


@pytest.fixture(scope="module")
def build() -> Build:
    found = discovery(
        llama_server=llama_server(), vllm=None, search_path="", python=sys.executable
    ).look()
    there = found.build("llama-server-cpu")
    assert there is not None, found.why_missing("llama-server-cpu")
    return there


def launched(build: Build, path: Path, **spec: Any) -> Launch:
    path.write_bytes(header({"general.architecture": "llama", "llama.context_length": 64}))
    engines, found, desired = Engines(inventory(build)), files(path), model(**spec)
    choice = engines.assess(desired, found).choice
    assert choice is not None
    return engines.launch(
        desired,
        found,
        choice,
        port=free_port(),
        environment={"PATH": "/usr/bin:/bin"},
        secrets={},
    )


def test_tells_its_version_and_its_flags(build: Build) -> None:
    assert build.version
    assert build.flags.complete
    assert build.flags.find("--ctx-size") is not None


@pytest.mark.parametrize("type", [ModelType.LLM, ModelType.EMBEDDING, ModelType.RERANK])
def test_takes_our_arguments_and_ends_at_a_model_without_tensors(
    build: Build, tmp_path: Path, type: ModelType
) -> None:
    launch, said = launched(build, tmp_path / "model.gguf", type=type), ""
    for _ in range(3):  # its end may overtake the thread that writes its log
        if not said:
            with served(launch, tmp_path / "log") as backend:
                assert backend.exit_code() == 1
                said = "\n".join(backend.lines())
    assert "failed to load model" in said
    assert "invalid argument" not in said


def test_takes_each_kind_of_argument_that_we_write(build: Build, tmp_path: Path) -> None:
    extra_args = {
        "ctx_size": 64,
        "flash_attn": False,
        "cont_batching": False,
        "kv_unified": True,
        "cache_type_k": "q8_0",
        "samplers": ["top_k", "temperature"],
        "chat_template_kwargs": {"a": [1, "ü"]},
        "reverse_prompt": ["a,b", "c"],
        "temp": 0.5,
        "seed": -1,
    }
    launch = launched(build, tmp_path / "model.gguf", extra_args=extra_args)
    with served(launch, tmp_path / "log") as backend:
        assert backend.exit_code() == 1
        said = "\n".join(backend.lines())
    assert "failed to load model" in said


def test_calls_its_flags_as_our_table_for_xllamacpp_does(build: Build) -> None:
    newer = {"--kv-unified-per-slot"}
    ours = {parameter.flag.name for parameter in PARAMETERS} - newer
    assert {name for name in ours if build.flags.find(name) is None} == set()
