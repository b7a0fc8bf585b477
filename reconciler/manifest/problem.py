"""What is wrong with a manifest, and where, as a line that an operator can act on."""

from dataclasses import dataclass
from enum import StrEnum

from reconciler.plan.ids import Place

Loc = tuple[str | int, ...]


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One complaint: `file:line:column: path: message`.

    `place` is None where no file can be named (an empty listing). `path` is dotted and may be empty
    (a syntax error). `related`: the other places that the message speaks of. `allowed_by`: see
    `Finding`.
    """

    place: Place | None
    path: str
    message: str
    severity: Severity = Severity.ERROR
    related: tuple[Place, ...] = ()
    allowed_by: str | None = None

    def __str__(self) -> str:
        parts = [str(self.place) if self.place else "", self.path, self.message]
        return ": ".join(part for part in parts if part)

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR


def position(problem: Problem) -> tuple[str, int, int]:
    """The order in which problems are shown: by file, line and column."""
    place = problem.place
    return (place.file, place.line, place.column) if place else ("", 0, 0)


def dotted(loc: Loc) -> str:
    """`("spec", "models", 0, "name")` as `spec.models[0].name`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A complaint about one place of one document, before it is known where that place stands.

    `at_key`: it is the key that is wrong, not what it holds. `allowed_by`: with which option it is
    right on a node.
    """

    loc: Loc
    message: str
    severity: Severity = Severity.ERROR
    at_key: bool = False
    allowed_by: str | None = None


def shown(value: object) -> str:
    """A value as a message shows it: short, and on one line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
