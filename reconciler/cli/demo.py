"""`xgen-model demo`: one node, or a small cluster, with a real small model on a directory hub."""

import functools
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reconciler import log
from reconciler.cli.agent_process import run_until_signalled
from reconciler.cli.demo_cluster import MOST_NODES, run_cluster
from reconciler.cli.demo_files import PREFIX, free_port, introduce, prepare
from reconciler.cli.demo_tour import Demo, tour
from reconciler.plan.ending import OnExit
from reconciler.plan.ids import NodeName
from reconciler.settings import HubSettings, Settings

MANIFEST = f"""\
# Edit this file while the demo runs; it is read again as soon as you save it.
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {{name: demo}}
spec:
  models:
    - name: gemma
      aliases: [gpt-4o-mini]
      source: {PREFIX}
      type: llm
      gpus: 0
      extra_args: {{ctx_size: 2048, parallel: 2}}
    - name: gemma-embed
      source: {PREFIX}
      type: embedding
      gpus: 0
      extra_args: {{ctx_size: 512, pooling: mean}}
"""


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the demo keeps its files.")
    ] = Path("xgen-demo"),
    once: Annotated[
        bool, typer.Option("--once", help="End after the answers, with exit code 0.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port to listen on, if it is free.")
    ] = 8000,
    nodes: Annotated[
        int,
        typer.Option(min=1, max=MOST_NODES, help="Agents, each a process: more are a cluster."),
    ] = 1,
) -> int:
    """Run one node with a real small model, ask it two things, and stay up to be played with.

    With --nodes 3 a cluster: any node answers for all, and one is lost and comes back.
    """
    console = Console(highlight=False, soft_wrap=True)
    folder = folder.absolute()
    if nodes > 1:
        return run_cluster(folder, count=nodes, port=port, once=once, console=console)
    console.print("[bold]xgen-model demo[/]: one node makes a manifest true, with a real model\n")
    introduce(console, folder)
    console.print()
    manifest = folder / "manifests" / "models.yaml"
    prepare(folder, console, manifest=manifest, text=MANIFEST)
    chosen = free_port(port)
    if chosen != port:
        console.print(f"port {port} is taken; listening on {chosen} instead\n")
    with (folder / "agent.log").open("a", encoding="utf-8") as stream:
        log.configure(form="console", stream=stream)
        return run_until_signalled(
            _settings(folder, manifest, chosen),
            companion=functools.partial(
                tour, Demo(manifest=manifest, folder=folder, once=once, console=console)
            ),
            cut_short=1 if once else 0,
        )


def _settings(folder: Path, manifest: Path, port: int) -> Settings:
    return Settings(
        manifest=str(manifest.parent),
        hub=HubSettings(location=str(folder / "hub")),
        node=NodeName("demo-node"),
        listen_port=port,
        data_dir=folder / "state",
        models_dir=folder / "state" / "models",
        on_exit=OnExit.STOP,
        environment=dict(os.environ),
    )
