"""The engines: which were found, why others were not, and whether the models can run on them."""

import os
import sys
from collections.abc import Iterator

from reconciler.backend.builds import discover
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import LLAMA_SERVER_CPU
from reconciler.cli.checks.finding import Finding, fail, ok, skip, warn
from reconciler.plan.desired import Desired


def engine_findings(llama_server: str | None, desired: Desired | None) -> Iterator[Finding]:
    inventory = discover(
        llama_server=llama_server,
        search_path=os.environ.get("PATH", ""),
        python=sys.executable,
    )
    for build in inventory.builds:
        yield ok("engine", f"{build.id}: {build.detail}")
    for gap in inventory.missing:
        if gap.id == LLAMA_SERVER_CPU and llama_server is not None:
            yield warn("engine", f"{gap.id}: {gap.reason}", "correct --llama-server")
        elif inventory.builds:
            yield skip("engine", f"{gap.id}: {gap.reason}")
        else:
            yield fail("engine", f"{gap.id}: cannot be used", gap.reason)
    engines = Engines(inventory)
    for model in desired.models if desired else ():
        refusal = engines.assess(model, None).refusal if model.enabled else None
        if refusal is not None:
            yield fail(f"engine of {model.name}", refusal, "change the manifest, or the node")
