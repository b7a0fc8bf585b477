"""`xgen-model status`: what agents say of themselves and their models."""

from functools import partial
from typing import Annotated

import typer

from reconciler.cli.client import find_agent, known_agent
from reconciler.cli.cluster_view import only
from reconciler.cli.history_view import show_history
from reconciler.cli.options import DataDir, ServerOption, TargetOption, data_dir
from reconciler.cli.output import Output, OutputOption, console, print_json, remark, show
from reconciler.cli.status_view import render
from reconciler.cli.watch import watch_status
from reconciler.cli.without_agent import runs_without_agent
from reconciler.errors import XgenError


def status(
    server: ServerOption = None,
    target: TargetOption = None,
    data: DataDir = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", help="This node alone, by its name, its pod's name, an IP, or IP:PORT."
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Follow it until Ctrl-C, also past a restart.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every condition, of the models too.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="What came of the last revisions of the manifest.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show every node of the cluster and its models, each with its state and the reason for it.

    Where no agent is found, stderr tells what runs without one. Piped, --watch prints a line a
    change, with --output json an object a line.
    """
    folder = data_dir(data)
    if watch:
        find = partial(find_agent, server, folder, target)
        watch_status(find, output, node=node, verbose=verbose)
        return
    if history:
        show_history(find_agent(server, folder, target).get("/api/management/history"), output)
        return
    try:
        view = find_agent(server, folder, target).servers()
    except XgenError:
        known = known_agent(server, folder)
        if known is None or known.has_ended:
            for line in runs_without_agent(folder):
                remark(line)
        raise
    if node is not None:
        view = only(view, node)
    if output is Output.JSON:
        print_json(view)
        return
    out = console()
    show(out, render(view, width=out.width, verbose=verbose))
