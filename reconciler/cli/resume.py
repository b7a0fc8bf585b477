"""`xgen-model resume`: end what `xgen-model suspend` began."""

from typing import Annotated

import typer

from reconciler.cli.client import find_agent
from reconciler.cli.completion import complete_model
from reconciler.cli.exits import ExitCode
from reconciler.cli.options import DataDir, ServerOption, TargetOption, data_dir
from reconciler.cli.output import Output, OutputOption, print_json
from reconciler.cli.suspend import By, who

_PATH = "/api/management/resume"


def resume(
    model: Annotated[
        str | None,
        typer.Argument(help="Only this model. [default: the node]", autocompletion=complete_model),
    ] = None,
    by: By = None,
    server: ServerOption = None,
    target: TargetOption = None,
    data: DataDir = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Let a node, or one model, follow the manifest again.

    What the manifest itself suspends is lifted there. Models that were suspended by name stay so
    when the node is resumed. Only on the agent's own host; --target NODE needs a cluster token.
    """
    agent = find_agent(server, data_dir(data), target)
    answer = agent.post(_PATH, {"model": model, "by": by or who()})
    if output is Output.JSON:
        print_json(answer)
    else:
        typer.echo(f"{answer['node']}: {answer['said']}")
    return ExitCode.OK
