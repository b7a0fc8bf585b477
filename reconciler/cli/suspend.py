"""`xgen-model suspend`: let a node, or one model, be as it is, also over restarts of the agent."""

import getpass
import re
import socket
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from reconciler.cli.client import find_agent
from reconciler.cli.completion import complete_model
from reconciler.cli.exits import ExitCode
from reconciler.cli.options import DataDir, ServerOption, TargetOption, data_dir
from reconciler.cli.output import Output, OutputOption, print_json
from reconciler.plan.span import span_complaint, span_seconds

_PATH = "/api/management/suspend"
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")

By = Annotated[
    str | None,
    typer.Option("--by", metavar="WHO", help="Who says so. [default: you, at this host]"),
]


def suspend(
    model: Annotated[
        str | None,
        typer.Argument(help="Only this model. [default: the node]", autocompletion=complete_model),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="WHY", help="Shown wherever it is told.")
    ] = "",
    by: By = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When it ends by itself: 18:00, or 2026-12-01T18:00 and a zone."
        ),
    ] = None,
    span: Annotated[
        str | None, typer.Option("--for", metavar="SPAN", help="The same: 90s, 30m, 2h, 3d.")
    ] = None,
    server: ServerOption = None,
    target: TargetOption = None,
    data: DataDir = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Start, stop and restart nothing of a model, or on the node, until `xgen-model resume`.

    What serves goes on serving, and what was begun comes to its end; a crash is not mended. It
    lasts over restarts of the agent. Only on the agent's own host; --target NODE needs a cluster
    token.
    """
    if until is not None and span is not None:
        raise typer.BadParameter("give either --until or --for", param_hint="--for")
    now = datetime.now(UTC)
    end = (
        ends_after(span, now)
        if span is not None
        else ends_at(until, now)
        if until is not None
        else None
    )
    agent = find_agent(server, data_dir(data), target)
    body = {"model": model, "reason": reason, "by": by or who()}
    answer = agent.post(_PATH, body | ({"until": end.isoformat()} if end is not None else {}))
    if output is Output.JSON:
        print_json(answer)
    else:
        typer.echo(f"{answer['node']}: {answer['said']}")
    return ExitCode.OK


def who() -> str:
    """The user of this command, and the host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def ends_after(span: str, now: datetime) -> datetime:
    """As a duration of a manifest is written."""
    seconds = span_seconds(span)
    complaint = "must be more than 0" if seconds == 0 else span_complaint(seconds)
    if seconds is None or complaint is not None:
        raise typer.BadParameter(f"{complaint}, not {span!r}", param_hint="--for")
    return now + timedelta(seconds=seconds)


def ends_at(text: str, now: datetime) -> datetime:
    """The next such time of the day, by this machine's clock; or a whole one."""
    if (clock := _CLOCK.fullmatch(text)) is not None:
        local = now.astimezone()
        at = local.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        moment = at if at > local else at + timedelta(days=1)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise typer.BadParameter(
                f"must be a time such as 18:00 or 2026-12-01T18:00+01:00, not {text!r}",
                param_hint="--until",
            ) from None
    moment = moment.astimezone(UTC)  # without a zone: by this machine's clock
    if moment <= now:
        raise typer.BadParameter(f"{text} is over already", param_hint="--until")
    return moment
