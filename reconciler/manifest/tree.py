"""A parsed document with its marks: what the validation reads values from and finds places in."""

from dataclasses import dataclass, field

from reconciler.manifest.problem import Loc
from reconciler.plan.desired import JsonValue

Scalar = str | int | float | bool | None


@dataclass(slots=True, kw_only=True)
class ScalarNode:
    """Lines and columns count from 1, here and below."""

    line: int
    column: int
    value: Scalar


@dataclass(slots=True, kw_only=True)
class SequenceNode:
    line: int
    column: int
    items: "list[Node]" = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Entry:
    """A key's own place, and what it holds."""

    line: int
    column: int
    node: "Node"


@dataclass(slots=True, kw_only=True)
class MappingNode:
    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict)


Node = ScalarNode | SequenceNode | MappingNode


def plain(node: Node) -> JsonValue:
    """The values alone."""
    match node:
        case ScalarNode():
            return node.value
        case SequenceNode():
            return [plain(item) for item in node.items]
        case MappingNode():
            return {key: plain(entry.node) for key, entry in node.entries.items()}


def locate(root: Node, loc: Loc, *, key: bool = False) -> tuple[int, int]:
    """Line and column of the value at `loc` (with `key`: of its key), or of its nearest ancestor.

    A map or list that is the value of a key is shown at the key: that is where a reader looks.
    """
    node = root
    line, column = node.line, node.column
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(node, MappingNode) and isinstance(part, str) and part in node.entries:
            entry = node.entries[part]
            node = entry.node
            at_value = isinstance(node, ScalarNode) and not (key and last)
            line, column = (node.line, node.column) if at_value else (entry.line, entry.column)
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            line, column = node.line, node.column
        else:
            break
    return line, column
