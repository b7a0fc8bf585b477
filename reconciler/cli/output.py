"""How commands print: for people on a terminal, plain where it is piped, JSON for machines."""

import json
import os
import sys
from enum import StrEnum
from typing import Annotated, TextIO

import typer
from rich.console import Console, RenderableType
from rich.text import Text

_UNLIMITED = 100_000
"""Columns of what is no terminal: there a path or a reason is never broken."""


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option(help="For people, or JSON for machines.")]


def console(stream: TextIO | None = None) -> Console:
    """A console on stdout (or `stream`). Colours on a terminal only, and never under NO_COLOR."""
    out = stream or sys.stdout
    width = None if out.isatty() else _UNLIMITED
    return Console(
        file=out,
        width=width,
        highlight=False,
        emoji=False,
        markup=False,
        color_system=None if os.environ.get("NO_COLOR") else "auto",  # neither bold nor dim
    )


def show(to: Console, what: RenderableType) -> None:
    """Print; what is piped gets no blanks at the ends of lines."""
    if to.is_terminal:
        to.print(what)
        return
    with to.capture() as captured:
        to.print(what)
    to.file.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    to.file.flush()


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    """One object a line, for what goes on and on."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def complain(message: str) -> None:
    """An error, on stderr."""
    show(console(sys.stderr), Text(f"error: {message}", style="red"))


def remark(message: str) -> None:
    """Something beside the output that a reader should know, on stderr."""
    show(console(sys.stderr), Text(message, style="yellow"))
