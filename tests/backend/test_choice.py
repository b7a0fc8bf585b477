from collections.abc import Sequence
from typing import Any

import pytest

from reconciler.backend.choice import Choice, Refusal, choose
from reconciler.backend.inventory import Inventory
from reconciler.plan.desired import Format, ModelType
from reconciler.plan.gpus import Gpu
from tests.backend.build import gpu, inventory, llama_server, spec, vllm, xllamacpp

NO_SERVER = "no llama-server on PATH"
NO_PYTHON = "no python has it"
BOTH = inventory(llama_server(), xllamacpp(), llama_cpp_python=NO_PYTHON)
ONLY_WHEEL = inventory(xllamacpp(), llama_server_cpu=NO_SERVER)
NOTHING = inventory(
    llama_server_cpu=NO_SERVER, xllamacpp="not installed", llama_cpp_python=NO_PYTHON
)
WITH_VLLM = inventory(llama_server(), vllm(), vllm_cuda="it is built for the CPU")


def chosen(there: Inventory, format: Format = Format.GGUF, **fields: Any) -> Choice:
    made = choose(spec(**fields), format, there)
    assert isinstance(made, Choice)
    return made


def refused(there: Inventory, format: Format = Format.GGUF, **fields: Any) -> str:
    made = choose(spec(**fields), format, there)
    assert isinstance(made, Refusal)
    return made.reason


def test_prefers_llama_server_for_gguf_on_cpu() -> None:
    made = chosen(BOTH)
    assert made.build.id == "llama-server-cpu"
    assert made.reason == (
        "the first for gguf on CPU that is here: /opt/llama.cpp/llama-server, version 6123 (abc)"
    )
    assert made.passed_over == ()


def test_says_why_a_better_backend_was_passed_over() -> None:
    made = chosen(ONLY_WHEEL)
    assert made.build.id == "xllamacpp"
    assert made.passed_over == (f"llama-server-cpu: {NO_SERVER}",)
    assert made.reason.endswith(f"; passed over: llama-server-cpu: {NO_SERVER}")


def test_says_of_each_backend_why_none_can_run() -> None:
    assert refused(NOTHING) == (
        "no backend on this node can run gguf on the CPU (llama-server-cpu: no llama-server on "
        "PATH; xllamacpp: not installed; llama-cpp-python: no python has it)"
    )


def test_takes_the_backend_that_the_manifest_names() -> None:
    made = chosen(BOTH, backend="xllamacpp")
    assert made.build.id == "xllamacpp"
    assert made.reason.startswith("the manifest asks for it: ")


@pytest.mark.parametrize(
    ("there", "fields", "reason"),
    [
        (ONLY_WHEEL, {"backend": "llama-server-cpu"}, NO_SERVER),
        (
            BOTH,
            {"backend": "llama-cpp-python"},
            "cannot use backend llama-cpp-python: no python has it; llama-server-cpu would run",
        ),
        (BOTH, {"backend": "vllm-cpu"}, "it does not run gguf files"),
        (BOTH, {"backend": "vllm-cuda"}, "it does not run gguf files"),
        (
            BOTH,
            {"backend": "llama-server-cuda"},
            "it runs on nvidia, and the model gets the CPU; llama-server-cpu would run here",
        ),
        (BOTH, {"backend": "ollama"}, "this release has llama-server-cuda, llama-server-rocm"),
        (BOTH, {"engine": "mine"}, "this node names no builds"),
        (
            BOTH,
            {"type": ModelType.TRANSCRIPTION},
            "llama-server-cpu: it serves no type transcription; xllamacpp: it",
        ),
        (
            BOTH,
            {"type": ModelType.TRANSCRIPTION, "backend": "xllamacpp"},
            "cannot serve gguf files as type transcription (xllamacpp: it serves no type "
            "transcription); vllm-cuda, vllm-rocm, vllm-cpu would, with safetensors",
        ),
    ],
)
def test_refuses_what_is_not_here_and_never_takes_another(
    there: Inventory, fields: dict[str, Any], reason: str
) -> None:
    assert reason in refused(there, **fields)


def test_never_falls_to_cpu_for_a_model_with_devices() -> None:
    made = choose(spec(), Format.GGUF, BOTH, (gpu(0),))
    assert isinstance(made, Refusal)
    assert made.reason == (
        "no backend on this node can run gguf on GPU 0 (GPU-00000000-aaaa-bbbb-cccc-dddddddddddd), "
        "nvidia (llama-server-cuda: it was not looked for; llama-server-vulkan: it was not looked "
        "for); gpus: 0 would run it on the CPU"
    )


def test_a_backend_that_is_named_runs_on_its_own_devices_only() -> None:
    there = inventory(llama_server(), llama_server(kind="vulkan"), vllm("vllm-rocm"))
    amd = gpu(vendor="amd", architecture="gfx1100")

    wrong = choose(spec(backend="llama-server-cpu"), Format.GGUF, there, (amd,))
    named = choose(spec(backend="vllm-rocm"), Format.SAFETENSORS, there, (amd,))
    auto = choose(spec(), Format.SAFETENSORS, there, (amd,))

    assert isinstance(wrong, Refusal)
    assert "it runs on CPU, and the model gets GPU 0" in wrong.reason
    assert wrong.reason.endswith("; llama-server-vulkan would run here")
    assert isinstance(named, Choice)
    assert named.devices == (amd,)
    assert isinstance(auto, Refusal)
    assert "; backend: vllm-rocm would, asked for by name; use a model in GGUF" in auto.reason


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ((gpu(0), gpu(1, vendor="amd", architecture="gfx942")), "GPUs of different kinds: GPU 0"),
        ((gpu(0, mig_of="GPU-x"), gpu(1, mig_of="GPU-x")), "several MIG instances"),
        ((gpu(0, vendor="amd", architecture="gfx906"),), "dddddddddddd), unknown; backend: llama"),
    ],
)
def test_devices_that_no_backend_can_take_are_refused(devices: Sequence[Gpu], reason: str) -> None:
    made = choose(spec(), Format.GGUF, inventory(llama_server(kind="vulkan")), devices)
    assert isinstance(made, Refusal)
    assert reason in made.reason


def test_refuses_safetensors_on_cpu_and_says_what_would_run() -> None:
    reason = refused(BOTH, Format.SAFETENSORS)
    assert reason.startswith("no backend on this node can run safetensors")
    assert "GGUF" in reason


@pytest.mark.parametrize("backend", ["auto", "vllm-cpu"])
def test_takes_vllm_for_safetensors_on_cpu(backend: str) -> None:
    assert chosen(WITH_VLLM, Format.SAFETENSORS, backend=backend).build.id == "vllm-cpu"


def test_a_vllm_for_gpus_is_not_taken_on_cpu() -> None:
    reason = refused(WITH_VLLM, Format.SAFETENSORS, backend="vllm-cuda")
    assert reason == (
        "cannot use backend vllm-cuda: it runs on nvidia, and the model gets the CPU; vllm-cpu "
        "would run here"
    )


def test_refuses_a_gguf_backend_for_safetensors() -> None:
    reason = refused(BOTH, Format.SAFETENSORS, backend="xllamacpp")
    assert reason == "cannot use backend xllamacpp: it does not run safetensors files"
