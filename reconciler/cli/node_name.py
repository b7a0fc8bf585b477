"""A node's name as flags and the environment give it: the manifest's rule for names holds."""

from pathlib import Path

import typer

from reconciler.errors import Rejected
from reconciler.manifest.fields import node_name_complaint
from reconciler.node.data_folder import read_json
from reconciler.plan.ids import NodeName


def node_name(given: str | None) -> NodeName | None:
    """None where nothing is given. Raises typer.BadParameter."""
    if not given:
        return None
    if complaint := node_name_complaint(given):
        raise typer.BadParameter(complaint, param_hint="--node (XGEN_NODE, NODE_NAME)")
    return NodeName(given)


def check_default(folder: Path, host: str) -> None:
    """Raises Rejected where a node that remembers no name would take a host's that is none."""
    if isinstance(read_json(folder / "node.json").get("node"), str):
        return
    if complaint := node_name_complaint(host):
        raise Rejected(
            f"cannot name this node after its host: the name {complaint}; give --node NAME"
        )
