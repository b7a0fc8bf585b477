"""Twelve hosts as data, and what would run there, as the table of docs/backends.md.

What their drivers know is told by the libraries of tests/observe/gpu_libraries, through the
vendors' real modules and the real survey.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.backend.choice import Choice, choose
from reconciler.backend.inventory import Build, Inventory, Missing
from reconciler.observe.devices.survey import STEP_SECONDS
from reconciler.plan.desired import Format
from reconciler.plan.gpu_claims import claims
from reconciler.plan.gpu_roll import enrolled
from reconciler.plan.gpu_survey import Answer
from tests.backend.build import llama_cpp_python, llama_server, model, vllm, xllamacpp
from tests.observe.conftest import Machine
from tests.observe.gpu_libraries import GpuLibraries, records

_NO_LLAMA = "no llama-server on PATH"
_NO_VLLM = "no vllm on PATH"


_LIMIT_SECONDS = 2.0
"""For a driver that hangs; shown is the limit that an agent has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`nvidia`, `amd`: what that driver's library tells; None: there is none. `llama`: what its
    llama-server is built for; `vllm`: its vLLM. None: it has none. `wheel`: xllamacpp is installed;
    `python`: llama-cpp-python is. `gpus`: what the model says."""

    what: str
    nvidia: str | None = None
    amd: str | None = None
    llama: tuple[str, ...] | None = None
    vllm: str | None = None
    wheel: bool = False
    python: bool = False
    gpus: int | None = None


def _nvidia(name: str, *buses: int) -> str:
    gpus = ({"name": name, "uuid": f"GPU-n{bus:x}", "pci": f"0000:{bus:02x}:00.0"} for bus in buses)
    return records("gpu", *gpus)


def _amd(name: str, gfx: str, *buses: int) -> str:
    gpus = (
        {
            "name": name,
            "uuid": f"GPU-a{bus:x}",
            "pci": f"0000:{bus:02x}:00.0",
            "hip": at,
            "gfx": gfx,
        }
        for at, bus in enumerate(buses)
    )
    return records("gpu", *gpus)


_H100, _RTX, _L4 = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "NVIDIA L4"
_MI300X, _RADEON = "AMD Instinct MI300X", "AMD Radeon RX 7900 XTX"
HOSTS = (
    Host(what="a laptop, the wheel only", wheel=True),
    Host(what="a CPU server", llama=(), vllm="cpu", wheel=True),
    Host(what="8 × H100", nvidia=_nvidia(_H100, *range(8)), llama=("cuda",), vllm="cuda"),
    Host(what="RTX 4090 without vLLM", nvidia=_nvidia(_RTX, 1), llama=("cuda", "vulkan")),
    Host(what="RTX 4090, a Vulkan build", nvidia=_nvidia(_RTX, 1), llama=("vulkan",)),
    Host(what="L4, a CPU build", nvidia=_nvidia(_L4, 1), llama=(), wheel=True),
    Host(what="L4, llama-cpp-python, `gpus: 0`", nvidia=_nvidia(_L4, 1), python=True, gpus=0),
    Host(
        what="4 × MI300X",
        amd=_amd(_MI300X, "0x942", *range(4)),
        llama=("rocm",),
        vllm="rocm",
    ),
    Host(
        what="2 × RX 7900 XTX",
        amd=_amd(_RADEON, "0x1100", 3, 4),
        llama=("rocm", "vulkan"),
        vllm="rocm",
    ),
    Host(
        what="Strix Halo (an APU)",
        amd=_amd("AMD Radeon 8060S", "0x1151", 0xC5),
        llama=("vulkan",),
    ),
    Host(
        what="MI50 (gfx906), a class of its own",
        amd=_amd("AMD Instinct MI50", "0x906", 1),
        llama=("rocm",),
        vllm="rocm",
    ),
    Host(
        what="a GPU node whose NVML hangs",
        nvidia=records("sys", {"nvmlInitWithFlags": "hang"}),
        llama=("cuda",),
        vllm="cuda",
    ),
)


def table(libraries: GpuLibraries, place: Path) -> Iterator[str]:
    """`place`: a folder of its own, for what the hosts' drivers tell."""
    yield "| host | files | runs on | why |"
    yield "|---|---|---|---|"
    for number, host in enumerate(HOSTS):
        (place / str(number)).mkdir()
        answers = _surveyed(host, libraries, place / str(number))
        for format in (Format.GGUF, Format.SAFETENSORS):
            backend, why = _outcome(host, answers, format)
            why = why.replace(f"within {_LIMIT_SECONDS:g} s", f"within {STEP_SECONDS:g} s")
            yield f"| {host.what} | {format} | {backend} | {why} |"


def _surveyed(host: Host, libraries: GpuLibraries, place: Path) -> Sequence[Answer]:
    with pytest.MonkeyPatch.context() as environment:
        machine = Machine(place, libraries, environment)
        machine.has(nvidia=host.nvidia, amd=host.amd)
        hangs = "hang" in (host.nvidia or "")
        seconds = _LIMIT_SECONDS if hangs else STEP_SECONDS
        return tuple(machine.survey(step_seconds=seconds).values())


def _outcome(host: Host, answers: Sequence[Answer], format: Format) -> tuple[str, str]:
    wanted = model(gpus=host.gpus)
    claim = claims([wanted], enrolled(None, answers, {}), {})[wanted.name]
    if claim.refusal is not None:
        return "—", claim.refusal
    made = choose(wanted.spec, format, _inventory(host), claim.devices)
    if not isinstance(made, Choice):
        return "—", made.reason
    return f"`{made.build.id}`", made.reason


def _inventory(host: Host) -> Inventory:
    builds: list[Build] = []
    missing: list[Missing] = []
    for kind in ("cuda", "rocm", "vulkan", "cpu"):
        id = f"llama-server-{kind}"
        if host.llama is not None and kind in (*host.llama, "cpu"):
            builds.append(llama_server(kind=kind))
        elif host.llama is not None:
            built = f"it is built for {' and '.join(host.llama)}"
            none = "it lists no GPU, nor has it a library for any"
            missing.append(Missing(id=id, reason=built if host.llama else none))
        else:
            missing.append(Missing(id=id, reason=_NO_LLAMA))
    for kind in ("cuda", "rocm", "cpu"):
        if host.vllm == kind:
            builds.append(vllm(f"vllm-{kind}"))
        else:
            missing.append(Missing(id=f"vllm-{kind}", reason=_NO_VLLM))
    if host.wheel:
        builds.append(xllamacpp())
    else:
        missing.append(Missing(id="xllamacpp", reason="not installed"))
    if host.python:
        builds.append(llama_cpp_python())
    else:
        missing.append(Missing(id="llama-cpp-python", reason="no python has it"))
    return Inventory(builds=tuple(builds), missing=tuple(missing))
