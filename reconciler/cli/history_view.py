"""What came of the last revisions, as it is shown to people: a line each, and what was wrong."""

from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from reconciler.attempt import Outcome
from reconciler.cli.client import Json
from reconciler.cli.output import Output, console, print_json, show
from reconciler.cli.table import Column, table
from reconciler.plan.wording import span

_COLUMNS = (
    Column(title="SEEN"),
    Column(title="REVISION"),
    Column(title="OUTCOME"),
    Column(title="TOOK", rank=2),
    Column(title="REASON", prose=True),
)
_COLOURS = {
    Outcome.APPLIED: "green",
    Outcome.REFUSED: "red",
    Outcome.FAILED: "red",
    Outcome.WAITING: "yellow",
}


def show_history(told: Json, output: Output) -> None:
    """`told`: as the agent tells it."""
    if output is Output.JSON:
        print_json(told)
        return
    out, revisions = console(), told["revisions"]
    if not revisions:
        show(out, Text("no revision of the manifest was seen yet", style="dim"))
        return
    show(out, table(_COLUMNS, [_row(each) for each in revisions], width=out.width))
    for each in revisions:
        for line in _wrong(each):
            show(out, line)


def _row(attempt: Json) -> list[Text]:
    outcome, seconds = str(attempt["outcome"]), attempt.get("seconds")
    return [
        Text(_local(str(attempt["seen_at"]))),
        Text(str(attempt["revision"])[:12]),
        Text(outcome, style=_COLOURS.get(Outcome(outcome), "dim")),
        Text("-" if seconds is None else span(seconds)),
        _said(attempt),
    ]


def _said(attempt: Json) -> Text:
    """The commit's own words first, where there are any."""
    note = attempt.get("note")
    if not note:
        return Text(str(attempt["reason"]))
    return Text.assemble((f"{note}: ", "dim"), str(attempt["reason"]))


def _wrong(attempt: Json) -> Iterator[Text]:
    wrong = [f"{each['model']}: {each['reason']}" for each in attempt.get("models", ())]
    wrong += attempt.get("problems", ())
    if wrong:
        yield Text(f"\n{str(attempt['revision'])[:12]}:", style="bold")
        yield from (Text(f"  {line}", style="dim") for line in wrong)


def _local(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
