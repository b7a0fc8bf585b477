"""The engines: which were found, why others were not, and whether the models can run on them."""

import os
import sys
from collections.abc import Iterator

from reconciler.backend.builds import discover
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import (
    LLAMA_SERVER_CPU,
    VLLM_CPU,
    VLLM_CUDA,
    VLLM_ROCM,
    Inventory,
)
from reconciler.cli.checks.finding import Finding, fail, ok, skip, warn
from reconciler.plan.desired import Desired


def engine_findings(
    llama_server: str | None, vllm: str | None, desired: Desired | None
) -> Iterator[Finding]:
    inventory = discover(
        llama_server=llama_server,
        vllm=vllm,
        search_path=os.environ.get("PATH", ""),
        python=sys.executable,
    )
    found = {build.id for build in inventory.builds}
    wanted = {"--llama-server": llama_server, "--vllm": vllm}
    corrections = {
        id: f"correct {option}"
        for option, ids in _OPTIONS.items()
        for id in ids
        if wanted[option] is not None and found.isdisjoint(ids)
    }
    for build in inventory.builds:
        yield ok("engine", f"{build.id}: {build.detail}")
    for reason, ids in _by_reason(inventory).items():
        names = ", ".join(ids)
        if (correction := corrections.get(ids[0])) is not None:
            yield warn("engine", f"{names}: {reason}", correction)
        elif inventory.builds:
            yield skip("engine", f"{names}: {reason}")
        else:
            yield fail("engine", f"{names}: cannot be used", reason)
    engines = Engines(inventory)
    for model in desired.models if desired else ():
        refusal = engines.assess(model, None).refusal if model.enabled else None
        if refusal is not None:
            yield fail(f"engine of {model.name}", refusal, "change the manifest, or the node")


_OPTIONS = {"--llama-server": (LLAMA_SERVER_CPU,), "--vllm": (VLLM_CUDA, VLLM_ROCM, VLLM_CPU)}
"""Which names the builds of which backends."""


def _by_reason(inventory: Inventory) -> dict[str, list[str]]:
    """One engine is several backends, which are missing for one reason."""
    grouped: dict[str, list[str]] = {}
    for gap in inventory.missing:
        grouped.setdefault(gap.reason, []).append(gap.id)
    return grouped
