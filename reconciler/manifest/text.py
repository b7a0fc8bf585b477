"""A file's bytes as text that YAML can hold, or what keeps them from being that."""

import re

from reconciler.manifest.problem import Problem
from reconciler.plan.ids import Place

MAX_BYTES = 1024 * 1024
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]"
)
"""All but YAML's printable characters. The few, not the many: so it is ready ten times as soon."""


def decoded(name: str, content: bytes) -> str | Problem:
    """Its text, or why it has none."""
    if len(content) > MAX_BYTES:
        return at_start(name, "the file is too large: more than 1 MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(content[: error.start].decode("utf-8-sig", "replace"))
        message = f"the file is not UTF-8 text: byte {content[error.start]:#04x}"
        return Problem(place=Place(file=name, line=line, column=column), path="", message=message)
    if found := _UNPRINTABLE.search(text):
        line, column = _line_and_column(text[: found.start()])
        message = f"the control character U+{ord(found[0]):04X}"
        return Problem(place=Place(file=name, line=line, column=column), path="", message=message)
    return text


def at_start(name: str, message: str) -> Problem:
    return Problem(place=Place(file=name, line=1, column=1), path="", message=message)


def _line_and_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
