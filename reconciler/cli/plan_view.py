"""A plan as it is shown on a terminal, and as JSON (PURE)."""

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from reconciler.cli.plan_words import (
    MEANINGS,
    SIGNS,
    count,
    cure,
    elsewhere,
    evicted,
    files,
    gap,
    has_changes,
    needs,
    order,
    pools,
    summary,
    totals,
    value,
)
from reconciler.plan.balance import Balance
from reconciler.plan.changes import Change, NodeChanges, Verb
from reconciler.plan.changes_json import node_as_json

Json = dict[str, object]

_COLOURS = {
    Verb.START: "green",
    Verb.RESTART: "yellow",
    Verb.SURGE: "cyan",
    Verb.REROUTE: "cyan",
    Verb.STOP: "red",
    Verb.REFUSED: "bold red",
    Verb.UNCHANGED: "dim",
}
_NARROW = 72
"""On fewer columns a reason stands below its model, not beside it."""
_INDENT = 6
_LISTED = 12
"""More models that stay as they are, with nothing to say of them, are counted."""


def as_json(nodes: Sequence[NodeChanges], *, agent: str | None, against: str) -> Json:
    """`plan_schema` has the shape. `against`: see `as_text`."""
    return {
        "api": 1,
        "agent": agent,
        "against": against,
        "changes": has_changes(nodes),
        "summary": {verb.value: count(nodes, verb) for verb in Verb},
        "totals": totals(nodes).figures,
        "nodes": [node_as_json(node) for node in nodes],
    }


def as_text(nodes: Sequence[NodeChanges], *, against: str) -> RenderableType:
    """`against`: what the manifest is compared with, as a clause."""
    parts: list[RenderableType] = []
    for node in nodes:
        parts += (_Wrapped(Text.assemble((node.node, "bold"), f", {against}")), Text())
        parts += _node(node)
        parts.append(Text())
    if has_changes(nodes):
        parts.append(_Wrapped(_legend(nodes)))
    parts.append(_Wrapped(Text(summary(nodes), style="bold")))
    return Group(*parts)


def _node(node: NodeChanges) -> Iterator[RenderableType]:
    quiet = [change for change in node.changes if _is_quiet(change)]
    counted = len(quiet) > _LISTED
    shown = [change for change in node.changes if not (counted and _is_quiet(change))]
    width = max((len(change.model) for change in shown), default=0)
    for change in shown:
        yield _Headline(change, width)
        yield from _details(change, pools(node))
    if counted:
        said = f"{SIGNS[Verb.UNCHANGED]} {len(quiet)} models are unchanged"
        yield _below(Text(said, style="dim"), 2)
    if node.unasked is not None:
        yield _below(Text(f"not asked: {node.unasked}", style="red"), 2)
    elif not node.changes:
        yield _below(Text("nothing runs here, and nothing would", style="dim"), 2)
    for other in elsewhere(node):
        yield _below(Text(other, style="dim"), 4)
    if (steps := order(node)) is not None:
        yield _below(Text(f"in this order: {steps}", style="dim"), 2)
    for each in pools(node):
        yield _below(Text(str(each), style="bold red" if each.overflows else "dim"), 2)
    if node.evictions:
        listed = ", ".join(map(evicted, node.evictions))
        yield _below(Text(f"leaves the cache to make room: {listed}", style="yellow"), 2)
    for note in node.notes:
        yield _below(Text(f"note: {note}", style="yellow"), 2)
    for error in node.errors:
        yield _below(Text(f"error: {error}", style="red"), 2)


def _is_quiet(change: Change) -> bool:
    return change.verb is Verb.UNCHANGED and change.engine is None and change.held is None


class _Headline:
    """`~ chat  restart  why`, in columns where there is room for them."""

    def __init__(self, change: Change, width: int) -> None:
        style = _COLOURS[change.verb]
        padded = f"{change.model:<{width}}"
        self._what = Text(f"  {SIGNS[change.verb]} {padded}  {change.verb:<9}", style=style)
        self._why = Text(change.reason, style="dim" if change.verb is Verb.UNCHANGED else "")

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        if options.max_width < _NARROW or self._what.cell_len > options.max_width // 2:
            self._what.rstrip()
            yield self._what
            yield _below(self._why)
            return
        yield _Wrapped(self._why, Text.assemble(self._what, "  "))


def _details(change: Change, memories: Sequence[Balance]) -> Iterator[RenderableType]:
    if change.held is not None:
        yield _below(Text(f"held back: {change.held}", style="magenta"))
    if (said := gap(change)) is not None:
        yield _below(Text(said, style="yellow" if change.verb is Verb.RESTART else "dim"))
    if change.fetch is not None:
        yield _dim(f"source: {change.source}, {files(change)}")
        if change.fallback is not None:
            yield _dim(f"or its fallback {change.fallback}, where no backend runs that")
    for need in needs(change, memories):
        yield _dim(need)
    if change.engine is not None:
        yield _dim(f"engine: {change.engine}")
    if (said := cure(change)) is not None:
        yield _dim(said)
    for each in change.fields:
        line = Text(f"{each.path}: ")
        line.append(value(each.old), style="red")
        line.append(" → ")
        line.append(value(each.new), style="green")
        yield _below(line)


def _dim(said: str) -> RenderableType:
    return _below(Text(said, style="dim"))


def _below(text: Text, indent: int = _INDENT) -> RenderableType:
    return _Wrapped(text, Text(" " * indent))


class _Wrapped:
    """Text behind a `lead`; what is wrapped stays as far to the right. No line ends in blanks."""

    def __init__(self, text: Text, lead: Text | None = None) -> None:
        self._text = text
        self._lead = lead if lead is not None else Text()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        indent = self._lead.cell_len
        lines = self._text.wrap(console, max(options.max_width - indent, 1), overflow="fold")
        for number, line in enumerate(lines or [Text()]):
            shown = Text.assemble(self._lead if number == 0 else " " * indent, line)
            shown.rstrip()
            yield shown


def _legend(nodes: Sequence[NodeChanges]) -> Text:
    line = Text()
    for verb in Verb:
        if count(nodes, verb):
            line.append("  " if line else "")
            line.append(f"{SIGNS[verb]} {MEANINGS[verb]}", style=_COLOURS[verb])
    return line
