"""The flags of a plan that asks no agent."""

from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli.candidate import read_candidate
from reconciler.cli.git_option import GitOptions
from reconciler.cli.kubernetes_option import kubernetes_access
from reconciler.errors import Rejected
from reconciler.manifest.union import Manifest

BeforeOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PATH",
        help="The manifest that is taken to run, as --manifest takes it. Asks no agent.",
    ),
]
FleetOption = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        metavar="FILE",
        help="What the nodes are: GPUs, engines, memory (`xgen-model fleet` writes it). Asks no "
        "agent.",
    ),
]
PlanHub = Annotated[
    str | None,
    typer.Option(
        "--hub",
        metavar="PLACE",
        help="Where no agent is asked, for the sizes of models: s3://BUCKET[/BASE] or a directory.",
    ),
]
WithoutOption = Annotated[
    str | None,
    typer.Option("--without", metavar="NODE", help="What if this node were gone. Not yet."),
]


def refuse_without(node: str | None) -> None:
    if node is not None:
        raise Rejected(
            f"cannot plan without {node}: models run on the nodes that they name, and nothing "
            "would move; that comes with `replicas`, which are not supported yet"
        )


def read_old(
    place: str, git: GitOptions, kubeconfig: Path | None, kube_context: str | None
) -> Manifest | None:
    """None: a folder that holds no manifest. Raises as `read_candidate`."""
    path = Path(place)
    if path.is_dir() and not any(map(_is_manifest, path.iterdir())):
        return None
    access = git.access(place)
    cluster = kubernetes_access(place, kubeconfig, kube_context)
    try:
        return read_candidate(place, access, cluster).manifest
    except typer.BadParameter as exc:
        raise typer.BadParameter(exc.message, param_hint="--from") from exc


def _is_manifest(file: Path) -> bool:
    return file.suffix in (".yaml", ".yml", ".json") and not file.name.startswith(".")


def said_against(before: str | None, fleet: Path | None, *, runs: bool) -> str:
    """As a clause. `runs`: `before` holds a manifest."""
    on = f" on the nodes of {fleet}" if fleet is not None else ""
    if before is None:
        return f"from nothing{on} (no agent was asked)"
    if not runs:
        return f"from nothing{on}, since {before} holds no manifest (no agent was asked)"
    return f"compared with {before}, taken to run{on} (no agent was asked)"
