"""How tables fit into terminals."""

import io

from rich.console import Console
from rich.text import Text

from reconciler.cli.table import Column, table

COLUMNS = (
    Column(title="NAME"),
    Column(title="LESS", rank=1),
    Column(title="LEAST", rank=2),
    Column(title="WHY", prose=True),
)


def drawn(*rows: tuple[str, ...], width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width, color_system=None)
    cells = [[Text(cell) for cell in row] for row in rows]
    with out.capture() as captured:
        out.print(table(COLUMNS, cells, width=width))
    return [line.rstrip() for line in captured.get().splitlines()]


ROW = ("a-model", "some", "least", "it waits for the files that are on their way")


def test_everything_is_shown_where_there_is_room() -> None:
    assert drawn(ROW, width=80) == [
        "NAME     LESS  LEAST  WHY",
        "a-model  some  least  it waits for the files that are on their way",
    ]


def test_the_least_important_column_goes_first_and_prose_wraps_at_words() -> None:
    assert drawn(ROW, width=48) == [
        "NAME     LESS  WHY",
        "a-model  some  it waits for the files that are",
        "               on their way",
    ]


def test_what_matters_is_kept_where_nothing_fits() -> None:
    lines = drawn(("a-model-with-a-very-long-name", "", "", ROW[3]), width=50)

    assert lines[1].startswith("a-model")
    assert "…" in lines[1]
    assert max(map(len, lines)) <= 50


def test_wide_characters_count_twice() -> None:
    first, second = drawn(("模型", "x", "y", "why"), ("abcd", "x", "y", "why"), width=80)[1:]

    assert first.index("x") == second.index("x") - 2
