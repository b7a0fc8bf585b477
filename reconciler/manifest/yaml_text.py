"""A YAML or JSON text as trees: the usual one soon, and any other with all that is wrong in it."""

from dataclasses import dataclass

from reconciler.manifest.problem import Loc
from reconciler.manifest.tree import Node
from reconciler.manifest.usual_yaml import compose_usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something that the text itself gets wrong; `loc` is empty where no path is known."""

    line: int
    column: int
    loc: Loc
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """`complete`: the text was read to its end, whatever its flaws."""

    documents: tuple[Node, ...]
    flaws: tuple[Flaw, ...]
    complete: bool


def compose(text: str) -> Composed:
    """All documents of a text. Never raises: what is wrong becomes a flaw."""
    usual = compose_usual(text)
    if usual is not None:
        return Composed(documents=usual, flaws=(), complete=True)
    # Here, since few manifests need it and its parser takes a while to import.
    from reconciler.manifest.yaml_tree import compose_any

    return compose_any(text)
