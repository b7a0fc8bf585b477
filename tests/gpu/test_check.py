"""The checks for a machine with a GPU, on one that a library in the driver's place describes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.backend.build import executable
from tests.e2e.agent import REPOSITORY, llama_server_stand_in
from tests.gpu.ledger import Ledger, NotChecked, Told
from tests.gpu.vendor_tools import TOOLS, compared
from tests.observe.gpu_libraries import GpuLibraries, records

GIB = 2**30
LISTING = "  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80456 MiB free)"
CARD = {"uuid": "GPU-0", "pci": "0000:17:00.0", "total": 80 * GIB, "used": GIB}
NVIDIA_SMI, AMD_SMI, ROCM_SMI = TOOLS


def on_the_gpu(folder: Path, description: str, *, gpu: str = "GPU-0") -> Path:
    """A llama-server that takes 2 GiB of a GPU for as long as it lives."""
    program = llama_server_stand_in(folder, LISTING)
    taken = f"process;on={gpu};pid={{os.getpid()}};memory={2 * GIB};lives=1\\n"
    head, end = program.read_text(encoding="utf-8").split("value = lambda", 1)
    take = f'open({description!r}, "a").write(f"{taken}")\nvalue = lambda'
    program.write_text(head + take + end, encoding="utf-8")
    return program


def run(folder: Path, *args: str, env: Mapping[str, str]) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what is printed, the checks of the JSON by name."""
    path = folder / "gpu.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--json", str(path), *args],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    written = json.loads(path.read_text(encoding="utf-8"))
    return done.returncode, done.stdout, {each["name"]: each for each in written["checks"]}


@pytest.mark.slow
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    code, printed, checks = run(tmp_path, env={})

    assert code == 77
    assert "there is no libnvidia-ml.so.1" in checks["detection"]["told"]["said"]
    assert printed.endswith("nothing of the engines was checked\n")


@pytest.mark.slow
def test_an_engine_on_a_gpu_is_followed_from_its_start_to_its_end(
    libraries: GpuLibraries, tmp_path: Path
) -> None:
    env = libraries.machine(tmp_path, nvidia=records("gpu", CARD))
    engine = on_the_gpu(tmp_path, env["NVML_DESCRIPTION"])
    executable(tmp_path / "nvidia-smi", 'echo "00000000:17:00.0, 81920"', "/bin/sh")

    code, printed, checks = run(tmp_path, "--llama-server", str(engine), env=env)

    verdicts = {name: each["verdict"] for name, each in checks.items()}
    absent = ["beside amd-smi", "beside rocm-smi"]
    assert {name for name, verdict in verdicts.items() if verdict == "ok"} == {
        "detection",
        "beside nvidia-smi",
        "chats",
        "streams",
        "loads on the GPU that it got",
        "the driver sees it there",
        "estimate and what is used",
        "two share, a third cannot",
        "memory is back after a stop",
        "and after kill -9",
        "and when no model is left",
    }, printed
    assert [verdicts[name] for name in absent] == ["not checked"] * 2
    assert "there is no vllm on PATH" in printed
    estimate = checks["estimate and what is used"]["told"]["figures"]
    assert estimate["used_bytes"] == 2 * GIB
    assert estimate["ratio"] == 2 * GIB / estimate["estimate"]["total_bytes"]
    assert code == 0


@pytest.mark.slow
def test_one_on_another_gpu_and_a_tool_that_says_otherwise_are_failures(
    libraries: GpuLibraries, tmp_path: Path
) -> None:
    other = {"uuid": "GPU-1", "pci": "0000:18:00.0", "total": 80 * GIB, "used": 2 * GIB}
    env = libraries.machine(tmp_path, nvidia=records("gpu", CARD, other))
    engine = on_the_gpu(tmp_path, env["NVML_DESCRIPTION"], gpu="GPU-1")
    executable(tmp_path / "nvidia-smi", 'echo "00000000:17:00.0, 81920"', "/bin/sh")

    code, printed, checks = run(tmp_path, "--llama-server", str(engine), env=env)

    assert code == 1, printed
    assert checks["beside nvidia-smi"]["told"]["said"] == (
        "nvidia-smi has 0000:17:00.0; xgen-model gpus has 0000:17:00.0, 0000:18:00.0"
    )
    assert "is on GPU 1 (GPU-1), and was given GPU 0 (GPU-0)" in printed


def card(vendor: str, total: int) -> dict[str, Any]:
    return {
        "vendor": vendor,
        "pci": "0000:17:00.0",
        "memory_total_bytes": total,
        "mig_of": None,
    }


def test_what_the_vendors_programs_print_is_understood() -> None:
    cards = [card("amd", 192 * GIB)]
    listed = '[{"gpu": 0, "bdf": "0000:17:00.0", "uuid": "aaff74b5"}]'
    memory = {"PCI Bus": "0000:17:00.0", "VRAM Total Memory (B)": str(192 * GIB)}
    rocm = json.dumps({"card0": memory, "system": {"Driver version": "6.12"}})
    for tool, text in (
        (AMD_SMI, listed),
        (AMD_SMI, f'{{"gpu_data": {listed}}}'),
        (ROCM_SMI, rocm),
    ):
        assert compared(tool, tool.read(text), cards).figures == {"gpus": ["0000:17:00.0"]}
    # A GPU that works in the machine's memory.
    told = NVIDIA_SMI.read("00000000:17:00.0, [N/A]\n")
    assert told == {"0000:17:00.0": None}


def test_another_size_is_a_difference_and_nobody_s_gpu_is_none() -> None:
    told = NVIDIA_SMI.read("00000000:17:00.0, 40960\n")
    with pytest.raises(AssertionError, match="42,949,672,960 bytes of memory"):
        compared(NVIDIA_SMI, told, [card("nvidia", 80 * GIB)])
    with pytest.raises(NotChecked):
        compared(NVIDIA_SMI, {}, [card("amd", GIB)])


def test_nothing_is_checked_once_the_time_is_over() -> None:
    ledger = Ledger(0.0)

    assert not ledger.check("gpus", "late", lambda: Told(said="in time"))

    assert ledger.checks[0].told.said == "the time for all checks is over"
    assert not ledger.failed
