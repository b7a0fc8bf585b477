"""The engines: which were found, why others were not, and whether the models can run on them."""

import sys
from collections.abc import Iterator, Sequence

from reconciler.backend.builds import discovery
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import (
    LLAMA_CPP_PYTHON,
    VLLM_CPU,
    VLLM_CUDA,
    VLLM_ROCM,
    Inventory,
    Missing,
    NamedEngine,
    called,
)
from reconciler.cli.checks.finding import Finding, fail, ok, skip, warn
from reconciler.manifest.policy import Permissions
from reconciler.plan.desired import Desired


def engine_findings(
    llama_server: str | None,
    vllm: str | None,
    llama_cpp_python: str | None,
    named: Sequence[NamedEngine],
    desired: Desired | None,
    permissions: Permissions,
    search_path: str,
) -> Iterator[Finding]:
    inventory = discovery(
        llama_server=llama_server,
        vllm=vllm,
        llama_cpp_python=llama_cpp_python,
        search_path=search_path,
        python=sys.executable,
        engines=named,
    ).look()
    for build in inventory.builds:
        yield ok("engine", f"{called(build)}: {build.detail}")
    for gaps in _by_reason(inventory):
        names, reason = ", ".join(map(called, gaps)), gaps[0].reason
        if gaps[0].wanted:
            yield warn("engine", f"{names}: {reason}", f"correct {_option(gaps[0])}")
        elif inventory.builds:
            yield skip("engine", f"{names}: {reason}")
        else:
            yield fail("engine", f"{names}: cannot be used", reason)
    engines = Engines(inventory, permissions=permissions)
    for model in desired.models if desired else ():
        refusal = engines.assess(model, None).refusal if model.enabled else None
        if refusal is not None:
            yield fail(f"engine of {model.name}", refusal, _STEP)


_STEP = "change the manifest, or the node; engines are found by the flags that run gets"
_OPTIONS = {
    **dict.fromkeys((VLLM_CUDA, VLLM_ROCM, VLLM_CPU), "--vllm"),
    LLAMA_CPP_PYTHON: "--llama-cpp-python",
}


def _option(gap: Missing) -> str:
    """By which an operator has said where it is."""
    if gap.name is not None:
        return f"--engine {gap.name}=…"
    return _OPTIONS.get(gap.id, "--llama-server")


def _by_reason(inventory: Inventory) -> list[list[Missing]]:
    """One engine is several backends, which are missing for one reason."""
    grouped: dict[tuple[str, str | None], list[Missing]] = {}
    for gap in inventory.missing:
        grouped.setdefault((gap.reason, gap.name), []).append(gap)
    return list(grouped.values())
