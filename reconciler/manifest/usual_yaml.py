"""The YAML that nearly all manifests are written in, read by libyaml in a tenth of the time.

    usual ─▶ libyaml ─▶ trees
    else  ─▶ nothing: yaml_tree reads it, and has every message

Both parsers go by one grammar where a text keeps to the usual: no tabs, escapes, tags, anchors or
block scalars, and nothing that is wrong. tests/manifest/test_usual_yaml.py compares their trees.
"""

import re
from collections.abc import Callable
from typing import Any

from reconciler.manifest.tree import Entry, MappingNode, Node, ScalarNode, SequenceNode
from reconciler.manifest.yaml_scalar import plain_scalar

MAX_DEPTH = 64
MAX_NODES = 200_000
"""How many values one file may hold: some six thousand models."""
_SIGNS = "\t\r\\\x85\u2028\u2029\ufeff"
_LINE = re.compile(r"\n(?:%|\.\.\.|[^\n]{1000})")
"""1,000: how far before its colon a key may begin is limited, and counted in two ways."""
_COLON = re.compile(r"""["'] *:[^ \n]""")
"""With `_SIGNS` and `_LINE`: what the parsers do not agree on."""


class _Unusual(Exception):
    pass


def compose_usual(text: str) -> tuple[Node, ...] | None:
    """All documents of the text; None: it is not usual, or there is no libyaml here."""
    if any(sign in text for sign in _SIGNS) or _LINE.search(f"\n{text}") or _COLON.search(text):
        return None
    try:
        from yaml import YAMLError, events
        from yaml.cyaml import CParser
    except ImportError:
        return None
    try:
        return _Reader(events, CParser(text).get_event).documents()
    except (_Unusual, YAMLError, UnicodeEncodeError):
        return None


class _Reader:
    """`kinds`: the classes of events. `take`: gives the next one."""

    def __init__(self, kinds: Any, take: Callable[[], Any]) -> None:
        self._take = take
        self._kinds = kinds
        self._scalar = kinds.ScalarEvent
        self._map, self._map_end = kinds.MappingStartEvent, kinds.MappingEndEvent
        self._list, self._list_end = kinds.SequenceStartEvent, kinds.SequenceEndEvent
        self._left = MAX_NODES

    def documents(self) -> tuple[Node, ...]:
        found = []
        self._take()
        while (event := self._take()).__class__ is not self._kinds.StreamEndEvent:
            if event.version is not None or event.tags:
                raise _Unusual
            found.append(self._node(self._take(), 0, None))
            self._take()
        return tuple(found)

    def _node(self, event: Any, depth: int, key: Entry | None) -> Node:
        """`key`: which it is the value of."""
        kind = event.__class__
        if self._left == 0 or event.anchor is not None or event.tag is not None:
            raise _Unusual
        self._left -= 1
        if kind is self._scalar:
            return self._value(event, key)
        if depth == MAX_DEPTH:
            raise _Unusual
        mark = event.start_mark
        if kind is self._map:
            node = MappingNode(line=mark.line + 1, column=mark.column + 1)
            self._fill(node.entries, depth + 1)
            return node
        items: list[Node] = []
        take, end = self._take, self._list_end
        while (event := take()).__class__ is not end:
            items.append(self._node(event, depth + 1, None))
        return SequenceNode(line=mark.line + 1, column=mark.column + 1, items=items)

    def _fill(self, entries: dict[str, Entry], depth: int) -> None:
        take, end = self._take, self._map_end
        while (event := take()).__class__ is not end:
            if event.__class__ is not self._scalar or self._left == 0:
                raise _Unusual
            self._left -= 1
            text = event.value
            if event.anchor is not None or event.tag is not None or text in entries:
                raise _Unusual
            if text in ("", "<<") or event.style in ("|", ">"):
                raise _Unusual
            mark = event.start_mark
            entry = entries[text] = Entry(line=mark.line + 1, column=mark.column + 1, node=_NOTHING)
            entry.node = self._node(take(), depth, entry)

    def _value(self, event: Any, key: Entry | None) -> ScalarNode:
        text, style = event.value, event.style
        if style in ("|", ">"):
            raise _Unusual
        if style:
            place = event.start_mark
            return ScalarNode(line=place.line + 1, column=place.column + 1, value=text)
        value, wrong = plain_scalar(text)
        if wrong is not None:
            raise _Unusual
        if not text:
            if key is None:  # at the end of a text it has two places
                raise _Unusual
            return ScalarNode(line=key.line, column=key.column, value=value)
        mark = event.start_mark
        return ScalarNode(line=mark.line + 1, column=mark.column + 1, value=value)


_NOTHING = ScalarNode(line=0, column=0, value=None)
