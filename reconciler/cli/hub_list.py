"""`xgen-model hub list`: what the hub holds."""

from typing import Annotated

import typer
from rich.text import Text

from reconciler.cli.checks.finding import size
from reconciler.cli.hub_place import HubOption, existing_state, opened
from reconciler.cli.output import Output, OutputOption, console, print_json, remark, show
from reconciler.cli.table import Column, table
from reconciler.node.hub_models import Contents, contents_of, row_of

_COLUMNS = (
    Column(title="PREFIX"),
    Column(title="FORMAT", rank=2),
    Column(title="SIZE", rank=1),
    Column(title="FILES", rank=3),
    Column(title="STATE"),
    Column(title="LICENCE", rank=5),
    Column(title="DIGEST", rank=4),
)
_COLOURS = {"verified": "green", "damaged": "red", "incomplete": "yellow"}
_SHORT = 12


def list_prefixes(
    hub: HubOption,
    prefix: Annotated[
        str | None, typer.Argument(metavar="[PREFIX]", help="Only this one. [default: all]")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show every model of the hub.

    verified: it has a catalog. unverified: pushed by another tool, without one. incomplete: its
    first push is under way, or was cut off. damaged: its catalog cannot be read.
    """
    with opened(hub) as place:
        found = (
            Contents(models=[row_of(existing_state(place, prefix))], others=[])
            if prefix is not None
            else contents_of(place)
        )
        location = place.location
    if output is Output.JSON:
        print_json({"api": 1, "hub": location, "models": found.models, "other_hubs": found.others})
        return
    out, rows = console(), found.models
    if rows:
        show(out, table(_COLUMNS, [_cells(row) for row in rows], width=out.width))
    else:
        remark(f"{location} holds no model")
    for row in rows:
        if row["reason"]:
            remark(f"{row['prefix']}: {row['reason']}")
    for other in found.others:
        remark(f"another hub lies in this one: --hub {other}")


def _cells(row: dict[str, object]) -> list[Text]:
    digest = str(row["digest"])[:_SHORT] if row["digest"] else "-"
    state = str(row["state"])
    return [
        Text(str(row["prefix"]), style="bold"),
        Text(str(row["format"] or "-")),
        Text(size(int(str(row["size_bytes"])))),
        Text(str(row["files"])),
        Text(state, style=_COLOURS.get(state, "")),
        Text(str(row["licence"] or "-")),
        Text(digest),
    ]
