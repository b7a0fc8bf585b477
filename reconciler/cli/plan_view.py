"""A plan as it is shown: on a terminal, as JSON, as Markdown for a pull request (PURE)."""

import json
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from reconciler.plan.balance import Balance
from reconciler.plan.changes import CHANGING, STARTING, Change, FieldChange, NodeChanges, Verb
from reconciler.plan.changes_json import node_as_json
from reconciler.plan.memory import HOST
from reconciler.plan.wording import amount

Json = dict[str, object]

_SIGNS = {
    Verb.START: "+",
    Verb.RESTART: "~",
    Verb.SURGE: "^",
    Verb.REROUTE: ">",
    Verb.STOP: "-",
    Verb.REFUSED: "!",
    Verb.UNCHANGED: "=",
}
_COLOURS = {
    Verb.START: "green",
    Verb.RESTART: "yellow",
    Verb.SURGE: "cyan",
    Verb.REROUTE: "cyan",
    Verb.STOP: "red",
    Verb.REFUSED: "bold red",
    Verb.UNCHANGED: "dim",
}
_NOT_WRITTEN = "(not set)"


def as_json(nodes: Sequence[NodeChanges], *, agent: str | None) -> Json:
    """docs/commands.md has the shape."""
    return {
        "api": 1,
        "agent": agent,
        "changes": has_changes(nodes),
        "summary": {verb.value: _total(nodes, verb) for verb in Verb},
        "nodes": [node_as_json(node) for node in nodes],
    }


def has_changes(nodes: Iterable[NodeChanges]) -> bool:
    return any(change.verb in CHANGING for node in nodes for change in node.changes)


def summary(nodes: Sequence[NodeChanges]) -> str:
    """`1 to start, 1 to restart, 0 to stop, 3 unchanged`; what else there is, where there is."""
    said = [f"{_total(nodes, verb)} to {verb}" for verb in (Verb.START, Verb.RESTART, Verb.STOP)]
    if surging := _total(nodes, Verb.SURGE):
        said.append(f"{surging} to surge")
    if rerouted := _total(nodes, Verb.REROUTE):
        said.append(f"{rerouted} to reroute")
    if refused := _total(nodes, Verb.REFUSED):
        said.append(f"{refused} refused")
    return ", ".join([*said, f"{_total(nodes, Verb.UNCHANGED)} unchanged"])


def as_text(nodes: Sequence[NodeChanges], *, against: str) -> RenderableType:
    """`against`: what the manifest is compared with, as a clause."""
    parts: list[Text] = []
    for node in nodes:
        parts.append(Text.assemble((node.node, "bold"), f", {against}\n"))
        width = max((len(change.model) for change in node.changes), default=0)
        for change in node.changes:
            parts += _lines(change, width, node.gpus)
        if not node.changes:
            parts.append(Text("  nothing runs here, and nothing would", style="dim"))
        parts += [
            Text(f"    {other.name} is not for this node: {other.reason}", style="dim")
            for other in node.elsewhere
        ]
        parts += [
            Text(f"  {each}", style="bold red" if each.overflows else "dim") for each in node.gpus
        ]
        parts += [Text(f"  note: {note}", style="yellow") for note in node.notes]
        parts.append(Text())
    parts.append(Text(summary(nodes), style="bold"))
    return Group(*parts)


def as_markdown(nodes: Sequence[NodeChanges], *, against: str) -> str:
    """A comment for a pull request."""
    lines = ["### xgen-model plan", ""]
    for node in nodes:
        lines += [f"**{_cell(node.node)}**, {_cell(against)}", ""]
        if node.changes:
            lines += ["| | model | change | why |", "|---|---|---|---|"]
            lines += [_markdown_row(change, node.gpus) for change in node.changes]
            lines.append("")
        lines += [
            f"- {_code(other.name)} is not for this node: {_cell(other.reason)}"
            for other in node.elsewhere
        ]
        lines += [f"- {_cell(str(each))}" for each in node.gpus]
        lines += [f"- note: {_cell(note)}" for note in node.notes]
        if node.elsewhere or node.notes or node.gpus:
            lines.append("")
    return "\n".join([*lines, f"**{summary(nodes)}**"])


def _total(nodes: Iterable[NodeChanges], verb: Verb) -> int:
    return sum(node.count(verb) for node in nodes)


def _lines(change: Change, width: int, gpus: Sequence[Balance]) -> Iterator[Text]:
    style = _COLOURS[change.verb]
    line = Text("  ")
    line.append(f"{_SIGNS[change.verb]} {change.model:<{width}}  {change.verb:<9}", style=style)
    line.append(f"  {change.reason}", style="dim" if change.verb is Verb.UNCHANGED else "")
    yield line
    indent = " " * 6
    if change.fetch is not None:
        yield Text(f"{indent}source: {change.source}, {_files(change)}", style="dim")
        if change.fallback is not None:
            or_else = f"or its fallback {change.fallback}, where no backend runs that"
            yield Text(f"{indent}{or_else}", style="dim")
    for need in _needs(change, gpus):
        yield Text(f"{indent}{need}", style="dim")
    if change.engine is not None:
        yield Text(f"{indent}engine: {change.engine}", style="dim")
    for each in change.fields:
        yield Text(f"{indent}{each.path}: {_value(each.old)} → {_value(each.new)}")


def _needs(change: Change, gpus: Sequence[Balance]) -> Iterator[str]:
    """Of each memory, a line."""
    names = {each.gpu: f"{each.name}, which has {amount(each.total_bytes)}" for each in gpus}
    # What is refused says in its reason what it needs; what stays as it is needs nothing new.
    for pool, need in change.needs.items() if change.verb in STARTING else ():
        yield f"needs {need}" if pool == HOST else f"needs {need} on {names.get(pool, pool)}"


def _files(change: Change) -> str:
    if (change.source or "").startswith("file://"):
        return "used in place"
    if not change.fetch:
        return "already cached"
    if change.download_bytes is not None:
        return f"download {amount(change.download_bytes)}"
    return "fetched from the hub unless it is cached"


def _markdown_row(change: Change, gpus: Sequence[Balance]) -> str:
    needs = map(_cell, _needs(change, gpus))
    why = [_cell(change.reason), *needs, *(_markdown_field(each) for each in change.fields)]
    shown = change.verb if change.verb is Verb.UNCHANGED else f"**{change.verb}**"
    sign = _code(_SIGNS[change.verb])
    return f"| {sign} | {_code(change.model)} | {shown} | {'<br>'.join(why)} |"


def _markdown_field(each: FieldChange) -> str:
    return f"{_code(each.path)}: {_code(_value(each.old))} → {_code(_value(each.new))}"


def _value(value: object) -> str:
    if value is None:
        return _NOT_WRITTEN
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(text: str) -> str:
    """Text that cannot leave its cell, mention anybody, or become a tag."""
    for special in "\\`*_[]<>|@#":
        text = text.replace(special, f"\\{special}" if special != "@" else "@\u200b")
    return " ".join(text.split())


def _code(text: str) -> str:
    """Text as code, in a cell too."""
    plain = " ".join(text.split()).replace("|", "\\|")
    fence = "``" if "`" in plain else "`"
    return f"{fence}{plain}{fence}"
