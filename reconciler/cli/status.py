"""`xgen-model status`: what agents say of themselves and their models."""

from typing import Annotated

import typer

from reconciler.cli.client import find_agent
from reconciler.cli.options import DataDir, ServerOption, data_dir
from reconciler.cli.output import Output, OutputOption, console, print_json, show
from reconciler.cli.status_view import render
from reconciler.cli.watch import watch_status


def status(
    server: ServerOption = None,
    data: DataDir = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Follow it until Ctrl-C, also past a restart.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show every node's models, each with its state and the reason for it.

    Piped, --watch prints a line a change, with --output json an object a line.
    """
    folder = data_dir(data)
    if watch:
        watch_status(server, folder, output)
        return
    view = find_agent(server, folder).servers()
    if output is Output.JSON:
        print_json(view)
        return
    out = console()
    show(out, render(view["servers"], width=out.width))
