"""A plan as the comment of a pull request (PURE).

    <!-- xgen-model plan: WHAT -->       by which a bot finds its comment of before
    ### what happens, in one line
    | what changes, the gravest first |
    <details> of each node </details>

A comment has room for 65,536 characters. What does not fit is left out as a whole and counted, the
details before the table, and within the table what costs least.
"""

import re
from collections.abc import Iterator, Sequence

from reconciler.cli.plan_words import (
    SIGNS,
    cure,
    elsewhere,
    evicted,
    files,
    gap,
    needs,
    order,
    pools,
    summary,
    value,
)
from reconciler.plan.changes import Change, FieldChange, NodeChanges, Verb

LIMIT = 65_536
"""Characters of a comment on GitHub; GitLab takes a million."""
MARKER = "<!-- xgen-model plan"
_CLIPPED = 300
"""Characters of one reason or value in a cell; in the details it stands as it is, up to ten
times so many."""
_FIELDS = 4
"""Of one model in the table; all are in the details."""
_IN_A_ROW = 60
_GRAVITY = {
    verb: number
    for number, verb in enumerate(
        (Verb.REFUSED, Verb.STOP, Verb.RESTART, Verb.SURGE, Verb.START, Verb.REROUTE)
    )
}
_SPECIAL = "\\`*_[]<>|#~"
_HEAD = ("| | model | node | change | why |", "|---|---|---|---|---|")


def as_markdown(
    nodes: Sequence[NodeChanges], *, against: str, what: str, limit: int = LIMIT
) -> str:
    """`what`: the manifest, as the marker has it: the same for the same comment. `against`: see
    `as_text`."""
    head = [marker(what), "### xgen-model plan", ""]
    head += [f"{_code(what)}, {_cell(against)}: **{_cell(summary(nodes))}**", ""]
    room = limit - _length(head) - 400  # what is said of what is left out
    changes = sorted(
        ((change, node) for node in nodes for change in node.changes if change.verb in _GRAVITY),
        key=lambda pair: (_GRAVITY[pair[0].verb], pair[1].node, pair[0].model),
    )
    rows, left_out = _fitting([_row(change, node) for change, node in changes], room)
    table = [*_HEAD, *rows, ""] if rows else []
    if left_out:
        table += [f"**{left_out} more changes are not shown: a comment has no room for them.**", ""]
    room -= _length(table)
    details, missing = _fitting([_details(node) for node in nodes], room)
    end = []
    if missing:
        nodes_left = f"{missing} node{'' if missing == 1 else 's'}"
        end = [f"*Without the details of {nodes_left}: a comment has no room for them.*", ""]
    return "\n".join([*head, *table, *details, *end]).rstrip() + "\n"


def marker(what: str) -> str:
    """A comment of HTML, which nobody sees: `--` would end it."""
    return f"{MARKER}: {_dashed(what)} -->"


def _dashed(text: str) -> str:
    return re.sub("[-<>]{2,}|[<>]", "-", " ".join(text.split()))


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _fitting(blocks: Sequence[str], room: int) -> tuple[list[str], int]:
    """Those from the first on that fit, and how many do not."""
    kept: list[str] = []
    for block in blocks:
        room -= len(block) + 1
        if room < 0:
            break
        kept.append(block)
    return kept, len(blocks) - len(kept)


def _row(change: Change, node: NodeChanges) -> str:
    why = [_cell(_clipped(change.reason))]
    if change.held is not None:
        why.append(f"**held back:** {_cell(_clipped(change.held))}")
    if (said := gap(change)) is not None:
        why.append(f"**{_cell(said)}**" if change.verb is Verb.RESTART else _cell(said))
    if change.fetch:
        why.append(_cell(files(change)))
    why += [_field(each, _IN_A_ROW) for each in change.fields[:_FIELDS]]
    if (more := len(change.fields) - _FIELDS) > 0:
        why.append(f"and {more} more field{'' if more == 1 else 's'}")
    sign, name = _code(SIGNS[change.verb]), _code(change.model)
    return f"| {sign} | {name} | {_code(node.node)} | **{change.verb}** | {'<br>'.join(why)} |"


def _details(node: NodeChanges) -> str:
    lines = [f"<details><summary>{_html(node.node)}: {_html(summary([node]))}</summary>", ""]
    if node.unasked is not None:
        lines.append(f"- **not asked:** {_cell(_shortened(node.unasked))}")
    elif not node.changes:
        lines.append("- nothing runs here, and nothing would")
    unchanged = [change.model for change in node.changes if change.verb is Verb.UNCHANGED]
    for change in node.changes:
        if change.verb is not Verb.UNCHANGED or change.engine or change.held:
            lines.append(f"- {_code(SIGNS[change.verb])} {_code(change.model)}: {change.verb}")
            lines += [f"  - {each}" for each in _of_change(change, node)]
    if unchanged:
        lines.append(f"- unchanged: {', '.join(map(_code, unchanged))}")
    lines += [f"- {_cell(_shortened(other))}" for other in elsewhere(node)]
    if (said := order(node)) is not None:
        lines.append(f"- in this order: {_cell(_shortened(said))}")
    for pool in pools(node):
        lines.append(f"- **{_cell(str(pool))}**" if pool.overflows else f"- {_cell(str(pool))}")
    if node.evictions:
        listed = ", ".join(map(evicted, node.evictions))
        lines.append(f"- leaves the cache to make room: {_cell(_shortened(listed))}")
    lines += [f"- note: {_cell(_shortened(note))}" for note in node.notes]
    lines += [f"- **error:** {_cell(_shortened(error))}" for error in node.errors]
    return "\n".join([*lines, "", "</details>", ""])


def _of_change(change: Change, node: NodeChanges) -> Iterator[str]:
    yield _cell(_shortened(change.reason))
    if change.held is not None:
        yield f"held back: {_cell(_shortened(change.held))}"
    if (said := gap(change)) is not None:
        yield _cell(said)
    if change.fetch is not None:
        instead = f", or its fallback {change.fallback}" if change.fallback else ""
        yield _cell(f"source: {change.source}{instead}, {files(change)}")
    yield from map(_cell, needs(change, pools(node)))
    if change.engine is not None:
        yield _cell(f"engine: {_shortened(change.engine)}")
    if (said := cure(change)) is not None:
        yield _cell(said)
    for each in change.fields:
        yield _field(each, 10 * _CLIPPED)


def _field(each: FieldChange, most: int) -> str:
    old, new = (_code(_cut(value(written), most)) for written in (each.old, each.new))
    return f"{_code(_cut(each.path, most))}: {old} → {new}"


def _clipped(text: str) -> str:
    return _cut(text, _CLIPPED)


def _shortened(text: str) -> str:
    return _cut(text, 10 * _CLIPPED)


def _cut(text: str, most: int) -> str:
    """Said to be cut, and by how much."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} characters more)"


def _cell(text: str) -> str:
    """Text that cannot leave its cell, mention anybody, or become a tag."""
    for special in _SPECIAL:
        text = text.replace(special, f"\\{special}")
    return " ".join(text.replace("@", "@\u200b").split())


def _html(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.replace("@", "@\u200b").split())


def _code(text: str) -> str:
    """Text as code, in a cell too."""
    plain = " ".join(text.split()).replace("|", "\\|") or " "
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if plain[0] == "`" or plain[-1] == "`" else ""
    return f"{fence}{pad}{plain}{pad}{fence}"
