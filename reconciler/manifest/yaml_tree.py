"""Text → trees: YAML 1.2 as ruamel.yaml reads it, without tags, repeated keys or merge keys.

JSON is read as the YAML that it is. Trees are built from the parser's events, without recursion,
so that a hostile file meets the limits before it costs anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from reconciler.manifest.problem import shown
from reconciler.manifest.syntax import syntax_message
from reconciler.manifest.tree import Entry, MappingNode, Node, Scalar, ScalarNode, SequenceNode
from reconciler.manifest.usual_yaml import MAX_DEPTH, MAX_NODES
from reconciler.manifest.yaml_scalar import plain_scalar
from reconciler.manifest.yaml_text import Composed, Flaw

MAX_ALIASED_NODES = 10_000
"""How many nodes aliases may stand for in one file: far above any real use of anchors."""
MAX_FLAWS = 100


class _LimitPassed(Exception):
    """A limit of depth or aliases: the rest of the file is not read."""


@dataclass(slots=True)
class _Frame:
    """A collection that is still open. `key` is set between a key and its value."""

    node: SequenceNode | MappingNode
    anchor: str | None
    key: Entry | None = None
    key_text: str = ""
    size: int = 1
    height: int = 1

    @property
    def step(self) -> str | int:
        return len(self.node.items) if isinstance(self.node, SequenceNode) else self.key_text


@dataclass(slots=True)
class _Composer:
    documents: list[Node] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Node, int, int]] = field(default_factory=dict)
    nodes: int = 0
    aliased: int = 0
    line: int = 1
    column: int = 1

    def flaw(self, message: str) -> None:
        loc = tuple(step for frame in self.stack if (step := frame.step) != "")
        self.flaws.append(Flaw(line=self.line, column=self.column, loc=loc, message=message))
        if len(self.flaws) == MAX_FLAWS:
            raise _LimitPassed("so many mistakes that the rest of the file is not read")

    def feed(self, event: Any) -> None:
        self.line, self.column = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, NodeEvent):
            self.nodes += 1
            if self.nodes > MAX_NODES:
                raise _LimitPassed(f"more than {MAX_NODES} values in one file")
            self._feed_node(event)
        elif isinstance(event, CollectionEndEvent):
            frame = self.stack.pop()
            self._add(frame.node, frame.size, frame.height, frame.anchor)
        elif isinstance(event, DocumentStartEvent):
            self.anchors = {}
            if event.version is not None and tuple(event.version) != (1, 2):
                self.flaw("only YAML 1.2 is read; take the %YAML line away")
            if event.tags:
                self.flaw("%TAG lines are refused")

    def _feed_node(self, event: Any) -> None:
        if isinstance(event, AliasEvent):
            self._add_alias(str(event.anchor))
            return
        if event.tag is not None:
            self.flaw(f"YAML tags are refused; take {_shown_tag(str(event.tag))} away")
        if isinstance(event, ScalarEvent):
            self._add_scalar(event)
            return
        node: SequenceNode | MappingNode
        if isinstance(event, SequenceStartEvent):
            node = SequenceNode(line=self.line, column=self.column)
        else:
            assert isinstance(event, MappingStartEvent)
            node = MappingNode(line=self.line, column=self.column)
        if len(self.stack) >= MAX_DEPTH:
            raise _LimitPassed(f"nested more than {MAX_DEPTH} levels deep")
        self.stack.append(_Frame(node=node, anchor=event.anchor))

    def _add_alias(self, anchor: str) -> None:
        if anchor not in self.anchors:
            inside = any(frame.anchor == anchor for frame in self.stack)
            what = "stands inside what it stands for" if inside else "has no anchor before it"
            self.flaw(f"the alias *{anchor} {what}")
            self._add(ScalarNode(line=self.line, column=self.column, value=None), 1, 1, None)
            return
        node, size, height = self.anchors[anchor]
        self.aliased += size
        if self.aliased > MAX_ALIASED_NODES or len(self.stack) + height > MAX_DEPTH:
            raise _LimitPassed(
                f"the aliases stand for too much: more than {MAX_ALIASED_NODES} values, or more "
                f"than {MAX_DEPTH} levels deep"
            )
        self._add(node, size, height, None)

    def _add_scalar(self, event: Any) -> None:
        text = str(event.value)
        value: Scalar = text
        if not text and not event.style and self.stack and (key := self.stack[-1].key):
            self.line, self.column = key.line, key.column  # its own mark is that of what follows
        if event.style:
            value = self._repaired(text)
        elif not self._expects_key():
            value, wrong = plain_scalar(text)
            if wrong is not None:
                self.flaw(wrong)
        elif text == "<<":
            self.flaw("merge keys (<<) are not part of YAML 1.2; spec.defaults may do instead")
        node = ScalarNode(line=self.line, column=self.column, value=value)
        self._add(node, 1, 1, event.anchor)

    def _repaired(self, text: str) -> str:
        r"""Quoted text, with JSON's pairs of `\uD83D\uDE00` escapes joined."""
        if "\0" in text:
            self.flaw("a NUL character in a value")
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.flaw(r"a value with half of a \u surrogate pair")
            return ""

    def _expects_key(self) -> bool:
        top = self.stack[-1] if self.stack else None
        return top is not None and isinstance(top.node, MappingNode) and top.key is None

    def _add(self, node: Node, size: int, height: int, anchor: str | None) -> None:
        if anchor is not None:
            self.anchors[anchor] = (node, size, height)
        if not self.stack:
            self.documents.append(node)
            return
        top = self.stack[-1]
        top.size += size
        top.height = max(top.height, height + 1)
        if isinstance(top.node, SequenceNode):
            top.node.items.append(node)
        elif top.key is None:
            top.key_text = self._key_text(node)
            top.key = Entry(line=node.line, column=node.column, node=node)
        else:
            entry = Entry(line=top.key.line, column=top.key.column, node=node)
            if top.key_text in top.node.entries:
                self._repeated(top, entry)
            else:
                top.node.entries[top.key_text] = entry
            top.key = None
            top.key_text = ""

    def _repeated(self, top: _Frame, entry: Entry) -> None:
        assert isinstance(top.node, MappingNode)
        self.line, self.column = entry.line, entry.column
        first = top.node.entries[top.key_text]
        self.flaw(f"the key {shown(top.key_text)} stands twice; first at line {first.line}")

    def _key_text(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            self.line, self.column = node.line, node.column
            self.flaw("a key must be text, not a map or a list (a template that nobody rendered?)")
            return ""
        if node.value is None or node.value == "":
            self.flaw("an empty key")
        return str(node.value)


def compose_any(text: str) -> Composed:
    """All documents of a YAML (or JSON) text. Never raises: what is wrong becomes a flaw."""
    composer = _Composer()
    complete = False
    try:
        for event in _events(text):
            composer.feed(event)
        complete = True
    except _LimitPassed as limit:
        flaw = Flaw(line=composer.line, column=composer.column, loc=(), message=str(limit))
        composer.flaws.append(flaw)
    except MarkedYAMLError as error:
        line, column, message = syntax_message(error)
        composer.flaws.append(Flaw(line=line, column=column, loc=(), message=message))
    except YAMLError as error:
        composer.flaw(f"cannot read this as YAML: {' '.join(str(error).split())}")
    except (ValueError, OverflowError):  # ruamel.yaml hands any \U escape to chr()
        composer.flaw(r"cannot read this as YAML: a \U escape that is no character")
    return Composed(
        documents=tuple(composer.documents), flaws=tuple(composer.flaws), complete=complete
    )


def _events(text: str) -> Iterator[Any]:
    yield from YAML(typ="safe", pure=True).parse(text)


def _shown_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!", 1)
