"""Twelve hosts as data, and what would run there, as the table of docs/backends.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.backend.choice import Choice, choose
from reconciler.backend.inventory import Build, Inventory, Missing
from reconciler.plan.desired import Format
from reconciler.plan.gpu_claims import claims
from reconciler.plan.gpu_roll import enrolled
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu
from tests.backend.build import llama_cpp_python, llama_server, model, vllm, xllamacpp
from tests.plan.gpu import amd, nvidia

_NO_LLAMA = "no llama-server on PATH"
_NO_VLLM = "no vllm on PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`llama`: what its llama-server is built for; `vllm`: its vLLM. None: it has none. `wheel`:
    xllamacpp is installed; `python`: llama-cpp-python is. `gpus`: what the model says. `fault`:
    NVML hangs."""

    what: str
    devices: tuple[Gpu, ...] = ()
    llama: tuple[str, ...] | None = None
    vllm: str | None = None
    wheel: bool = False
    python: bool = False
    gpus: int | None = None
    fault: bool = False


def _h100(bus: int) -> Gpu:
    return nvidia(bus)


def _radeon(bus: int, architecture: str = "gfx1100", **more: Any) -> Gpu:
    return amd(bus, architecture, name="AMD Radeon RX 7900 XTX", **more)


HOSTS = (
    Host(what="a laptop, the wheel only", wheel=True),
    Host(what="a CPU server", llama=(), vllm="cpu", wheel=True),
    Host(what="8 × H100", devices=tuple(map(_h100, range(8))), llama=("cuda",), vllm="cuda"),
    Host(what="RTX 4090 without vLLM", devices=(nvidia(1),), llama=("cuda", "vulkan")),
    Host(what="RTX 4090, a Vulkan build", devices=(nvidia(1),), llama=("vulkan",)),
    Host(what="L4, a CPU build", devices=(nvidia(1),), llama=(), wheel=True),
    Host(what="L4, llama-cpp-python, `gpus: 0`", devices=(nvidia(1),), python=True, gpus=0),
    Host(what="4 × MI300X", devices=tuple(map(amd, range(4))), llama=("rocm",), vllm="rocm"),
    Host(
        what="2 × RX 7900 XTX",
        devices=(_radeon(3), _radeon(4)),
        llama=("rocm", "vulkan"),
        vllm="rocm",
    ),
    Host(what="Strix Halo (an APU)", devices=(_radeon(0xC5, "gfx1151"),), llama=("vulkan",)),
    Host(
        what="MI50 (gfx906), a class of its own",
        devices=(amd(1, "gfx906"),),
        llama=("rocm",),
        vllm="rocm",
    ),
    Host(what="a GPU node whose NVML hangs", llama=("cuda",), vllm="cuda", fault=True),
)


def table() -> Iterator[str]:
    yield "| host | files | runs on | why |"
    yield "|---|---|---|---|"
    for host in HOSTS:
        for format in (Format.GGUF, Format.SAFETENSORS):
            backend, why = _outcome(host, format)
            yield f"| {host.what} | {format} | {backend} | {why} |"


def _outcome(host: Host, format: Format) -> tuple[str, str]:
    wanted = model(gpus=host.gpus)
    claim = claims([wanted], enrolled(None, _answers(host), {}), {})[wanted.name]
    if claim.refusal is not None:
        return "—", claim.refusal
    made = choose(wanted.spec, format, _inventory(host), claim.devices)
    if not isinstance(made, Choice):
        return "—", made.reason
    return f"`{made.build.id}`", made.reason


def _answers(host: Host) -> Sequence[Answer]:
    if host.fault:
        hung = "did not answer within 30 s"
        return [Answer(step=Step.NVML, reason=hung, cause=Cause.HUNG)]
    cause = None if host.devices else Cause.ABSENT
    return [Answer(step=Step.NVML, reason="told", devices=host.devices, cause=cause)]


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
