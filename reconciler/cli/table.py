"""A table that fits: it drops columns where the terminal is narrow, and breaks no word."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

_GAP = 2
_READABLE = 30
"""Columns that running text needs, to be wrapped at words and still be read."""
_NAME = 8
"""A name is not cut shorter than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`rank`: the highest is dropped first; 0 is never dropped. `prose`: wraps at words."""

    title: str
    rank: int = 0
    prose: bool = False


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], *, width: int, header: bool = True
) -> Table:
    """The rows, with the columns that fit into `width`; a name too long even so ends in `…`."""
    natural = [
        max([len(column.title) if header else 0, *(row[at].cell_len for row in rows)])
        for at, column in enumerate(columns)
    ]
    kept = _kept(columns, natural, width)
    widths = _narrowed(columns, {at: natural[at] for at in kept}, width)
    shown = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=header)
    for at in kept:
        shown.add_column(
            columns[at].title,
            no_wrap=not columns[at].prose,
            overflow="fold" if columns[at].prose else "ellipsis",
            header_style="bold",
            width=widths[at],
        )
    for row in rows:
        shown.add_row(*(row[at] for at in kept))
    return shown


def _kept(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    kept = list(range(len(columns)))
    while _needed(columns, natural, kept) > width:
        last = max(kept, key=lambda at: columns[at].rank)
        if columns[last].rank == 0:
            break
        kept.remove(last)
    return kept


def _needed(columns: Sequence[Column], natural: Sequence[int], kept: Sequence[int]) -> int:
    widths = [min(natural[at], _READABLE) if columns[at].prose else natural[at] for at in kept]
    return sum(widths) + _gaps(kept)


def _narrowed(columns: Sequence[Column], natural: dict[int, int], width: int) -> dict[int, int]:
    """What each column gets: prose takes what is left, then the longest names are cut."""
    widths = dict(natural)
    while (over := sum(widths.values()) + _gaps(widths) - width) > 0:
        prose = [at for at in widths if columns[at].prose and widths[at] > _READABLE]
        widest = (
            prose[0] if prose else max(widths, key=lambda at: (not columns[at].prose, widths[at]))
        )
        floor = _READABLE if prose else _NAME
        if widths[widest] <= floor:
            break
        widths[widest] = max(floor, widths[widest] - over)
    return widths


def _gaps(kept: Sized) -> int:
    return _GAP * max(len(kept) - 1, 0)
