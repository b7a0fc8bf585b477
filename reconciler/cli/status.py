"""`xgen-model status`: what an agent says of itself and its models."""

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reconciler.cli.options import DataDir, data_dir
from reconciler.errors import XgenError
from reconciler.node.data_folder import agent_url

Server = dict[str, Any]

_COLOURS = {
    "loaded": "green",
    "error": "red",
    "blocked": "red",
    "disabled": "dim",
    "stopped": "dim",
}


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


def status(
    server: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_SERVER",
            help="URL of an agent. [default: the one that the data folder names]",
        ),
    ] = None,
    data: DataDir = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    output: Annotated[Output, typer.Option(help="For people, or the JSON of the agent.")] = (
        Output.TEXT
    ),
) -> int:
    """Show every node's models with their state and the reason for it."""
    url = server or _recorded(data_dir(data))
    if output is Output.JSON:
        typer.echo(json.dumps(fetch(url), indent=2))
        return 0
    console = Console()
    if not watch:
        console.print(render(fetch(url)["servers"]))
        return 0
    with Live(console=console, refresh_per_second=4, screen=False) as live:
        while True:
            try:
                live.update(render(fetch(url)["servers"]))
            except XgenError as exc:
                live.update(Text(f"error: {exc}", style="red"))
            time.sleep(1)


def fetch(url: str) -> Server:
    """The cluster's view from one agent. Raises XgenError with the next step to take."""
    try:
        answer = httpx.get(f"{url.rstrip('/')}/api/cluster/servers", timeout=5)
        answer.raise_for_status()
        value = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
        raise XgenError(
            f"cannot read the status from {url}: {exc}; is the agent running there? "
            "Name another one with --server URL"
        ) from exc
    if not isinstance(value, dict) or "servers" not in value:
        raise XgenError(f"cannot read the status from {url}: no xgen-model agent answers there")
    return value


def render(servers: list[Server]) -> RenderableType:
    """One table over all nodes, and below it what is not as it should be."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NODE", "MODEL", "TYPE", "STATE", "BACKEND", "PID", "IN FLIGHT", "REASON"):
        table.add_column(title, overflow="fold", no_wrap=title in ("STATE", "PID"))
    notes: list[RenderableType] = []
    for server in servers:
        for model in server["models"]:
            table.add_row(*_row(server["node"], model))
        notes += _notes(server)
    if not any(server["models"] for server in servers):
        notes.insert(0, Text("no model is selected for this node", style="dim"))
    return Group(table, *notes)


def _row(node: str, model: Server) -> list[RenderableType]:
    names = Text(model["name"])
    if model["aliases"]:
        names.append(f" ({', '.join(model['aliases'])})", style="dim")
    reason = model["reason"]
    if model.get("target"):
        target = model["target"]
        reason += f"; coming: {target['state']}, {target['reason']}"
    pid = str(model["pid"]) if model["pid"] else "-"
    return [
        Text(node),
        names,
        Text(model["model_type"]),
        Text(model["state"], style=_COLOURS.get(model["state"], "yellow")),
        Text(model["backend"] or "-"),
        Text(pid),
        Text(str(model["in_flight"])),
        Text(reason),
    ]


def _notes(server: Server) -> list[RenderableType]:
    notes: list[RenderableType] = []
    for model in server["models"]:
        lines = model.get("last_lines") or []
        if lines:
            notes.append(Text(f"\nlast lines of {model['name']}:", style="bold"))
            notes += [Text(f"  {line}", style="dim") for line in lines[-8:]]
    bad = {"Suspended": "True", "Draining": "True"}
    for condition in server["conditions"]:
        if condition["status"] == bad.get(condition["type"], "False"):
            notes.append(
                Text(
                    f"\n{server['node']}: {condition['type']} is {condition['status']} "
                    f"({condition['reason']}) since {condition['since']}: {condition['message']}",
                    style="red",
                )
            )
    return notes


def _recorded(folder: Path) -> str:
    url = agent_url(folder)
    if url is None:
        raise XgenError(
            f"cannot find an agent: {folder} names none. "
            "Start one with `xgen-model run`, or name it with --server URL or --data-dir"
        )
    return url
