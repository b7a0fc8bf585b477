"""`xgen-model fleet`: what the nodes are, as a file for plans that ask no agent."""

from collections.abc import Iterator, Sequence

import typer

from reconciler.cli.client import Agent, find_agent
from reconciler.cli.options import DataDir, ServerOption, data_dir
from reconciler.cli.output import remark
from reconciler.errors import Rejected, Transient
from reconciler.manifest.fleet import parse_fleet
from reconciler.manifest.fleet_text import fleet_text


def fleet(server: ServerOption = None, data: DataDir = None) -> None:
    """Print what every node that an agent knows has: GPUs, engines, memory.

    For `plan --fleet FILE`, which then needs no agent: xgen-model fleet > fleet.yaml
    """
    agent = find_agent(server, data_dir(data))
    views = agent.servers()["servers"]
    there = [view for view in views if view.get("reachable", True)]
    for view in views:
        if not view.get("reachable", True):
            remark(f"{view['node']} is left out: it cannot be reached")
    for view in there:
        if view.get("engines") is None:
            remark(f"{view['node']}: its engines are left out, for it does not know them all yet")
    memories = dict(_memories(agent, [str(view["node"]) for view in there]))
    text = fleet_text(there, memories, source=agent.url)
    if problems := parse_fleet("fleet.yaml", text.encode()).problems:
        said = "; ".join(map(str, problems))
        raise Rejected(f"cannot write a fleet file from what {agent.url} tells: {said}")
    typer.echo(text, nl=False)


def _memories(agent: Agent, nodes: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Of each machine all its memory, which agents tell with what they would do."""
    for node in nodes:
        try:
            told = agent.post("/api/management/plan", {}, server=node)
        except (Rejected, Transient) as exc:
            remark(f"{node}: its memory is left out: {exc}")
            continue
        if (host := told.get("host")) is not None:
            yield node, int(host["total_bytes"])
