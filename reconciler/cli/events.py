"""`xgen-model events`: what happened on a node, and why."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reconciler.cli.client import Agent, Json, find_agent
from reconciler.cli.completion import complete_model
from reconciler.cli.options import DataDir, ServerOption, TargetOption, data_dir
from reconciler.cli.output import (
    Output,
    OutputOption,
    console,
    print_json,
    print_json_line,
    remark,
    show,
)
from reconciler.cli.table import Column, table
from reconciler.errors import XgenError

_PATH = "/api/management/events"
_PAUSE_SECONDS = 1.0
_COLUMNS = (
    Column(title="TIME"),
    Column(title="LEVEL", rank=2),
    Column(title="MODEL"),
    Column(title="EVENT", rank=1),
    Column(title="REASON", prose=True),
)
_WIDTHS = (14, 7, 16, 18)
"""Of the columns but the last, where events are printed as they come."""
_COLOURS = {"warning": "yellow", "error": "red"}


def events(
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with what comes, also past a restart."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Only of this model.", autocompletion=complete_model),
    ] = None,
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", metavar="N", min=1, max=1000, help="How many of the last ones."
        ),
    ] = 50,
    server: ServerOption = None,
    target: TargetOption = None,
    data: DataDir = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show what happened on a node and why, the newest at the end.

    The agent keeps the last 1,000 events; what is older stands in its log only.
    """
    find = partial(find_agent, server, data_dir(data), target)
    out = console()
    if follow:
        for event in _followed(find, _Place(query=_query(model, last))):
            if output is Output.JSON:
                print_json_line(event)
            else:
                show(out, _line(event, out))
        return
    page = find().get(_PATH, **_query(model, last))
    if output is Output.JSON:
        print_json(page)
    elif page["events"]:
        rows = [_cells(event, out) for event in page["events"]]
        show(out, table(_COLUMNS, rows, width=out.width))
    else:
        remark("no event" + (f" of {model}" if model else "") + " so far")


def _query(model: str | None, last: int) -> dict[str, str | int]:
    return {"limit": last} | ({"model": model} if model is not None else {})


@dataclass(slots=True, kw_only=True)
class _Place:
    """How far a follower has read. `query`: of the first connection; later ones go on from `id`."""

    query: dict[str, str | int]
    id: str | None = None

    def next_query(self) -> dict[str, str | int]:
        if self.id is None:
            return {**self.query, "follow": "true"}
        return {**self.query, "limit": 1000, "since": self.id, "follow": "true"}


def _followed(find: Callable[[], Agent], place: _Place) -> Iterator[Json]:
    """Events for ever. The first connection must succeed; later ones are tried again."""
    agent = find()
    away = False
    while True:
        try:
            for event in _connection(agent, place):
                if away:
                    remark("the agent answers again")
                    away = False
                yield event
            problem = f"{agent.who} ended the stream"
        except XgenError as exc:  # one that has just begun may not know the model yet
            if place.id is None:
                raise
            problem = str(exc)
        if not away:
            remark(f"{problem}; waiting for it to come back")
            away = True
        time.sleep(_PAUSE_SECONDS)
        agent = _found_again(find, agent)


def _found_again(find: Callable[[], Agent], before: Agent) -> Agent:
    """A new agent of the same data folder may answer elsewhere."""
    try:
        return find()
    except XgenError:
        return before


def _connection(agent: Agent, place: _Place) -> Iterator[Json]:
    """The events of one connection; `place` moves on with them."""
    with agent.stream(_PATH, place.next_query()) as lines:
        kind, identity = "message", None
        for line in lines:
            name, _, value = line.partition(": ")
            if not line:
                kind, identity = "message", None
            elif name == "event":
                kind = value
            elif name == "id":
                identity = value
            elif name == "data" and kind == "missed":
                remark(f"{json.loads(value)['missed']} events came too fast to be kept")
            elif name == "data":
                place.id = identity or place.id
                yield json.loads(value)


def _line(event: Json, out: Console) -> Table:
    """One event as it comes, aligned with those before it."""
    row = Table.grid(padding=(0, 2, 0, 0))
    cells = _cells(event, out)
    narrow = out.is_terminal and out.width < 100
    kept = [at for at in range(len(cells)) if not (narrow and _COLUMNS[at].rank)]
    for at in kept:
        width = _WIDTHS[at] if at < len(_WIDTHS) else None
        row.add_column(min_width=width, no_wrap=width is not None)
    row.add_row(*(cells[at] for at in kept))
    return row


def _cells(event: Json, out: Console) -> list[Text]:
    level = str(event["level"])
    return [
        Text(_time(str(event["time"]), short=out.is_terminal)),
        Text(level, style=_COLOURS.get(level, "dim")),
        Text(str(event["model"] or "-"), style="bold"),
        Text(str(event["kind"])),
        Text(str(event["reason"]), style=_COLOURS.get(level, "")),
    ]


def _time(text: str, *, short: bool) -> str:
    """As told (RFC 3339, UTC); `short`: in local time, as a person at a terminal wants it."""
    if not short:
        return text
    at = datetime.fromisoformat(text).astimezone()
    today = at.date() == datetime.now(at.tzinfo).date()
    return at.strftime("%H:%M:%S" if today else "%m-%d %H:%M:%S")
