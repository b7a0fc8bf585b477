"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Lines. The first column is text, the others are figures."""
    yield _row(heads)
    yield _row(("---", *["---:"] * (len(heads) - 1)))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
