"""A manifest as a command reads it: once, as an agent would, and judged for itself."""

import os
import sys
from pathlib import Path

import typer
from rich.text import Text

from reconciler.cli.output import console, show
from reconciler.errors import Rejected
from reconciler.manifest.inspection import Inspection, inspect
from reconciler.manifest.problem import Problem
from reconciler.manifest.resolve import FileInput
from reconciler.manifest.union import Manifest
from reconciler.source.listing import read_listing


def read_manifest(path: Path) -> Manifest:
    """A valid manifest. Raises Rejected; every problem is printed on stderr before."""
    inspection = look_at(path)
    err = console(sys.stderr)
    for problem in inspection.problems:
        show(err, problem_line(problem))
    if inspection.manifest is None:
        errors = sum(problem.is_error for problem in inspection.problems)
        raise Rejected(
            f"cannot use the manifest {path}: {errors} error{'' if errors == 1 else 's'}, "
            "shown above; an agent would keep what it runs"
        )
    return inspection.manifest


def look_at(path: Path) -> Inspection:
    """All of it, with its problems. Raises typer.BadParameter (not there) or Rejected."""
    if not os.path.lexists(path):
        raise typer.BadParameter(f"there is no file or directory {path}", param_hint="--manifest")
    snapshot = read_listing(path).snapshot
    if snapshot.error is not None:
        raise Rejected(snapshot.error)
    return inspect(
        [
            FileInput(name=_shown(path, file.name), content=file.content, error=file.error)
            for file in snapshot.files
        ]
    )


def _shown(path: Path, name: str) -> str:
    """A name that leads to the file from here."""
    return str(path / name) if path.is_dir() else name


def problem_line(problem: Problem) -> Text:
    """`file:line:column: path: message`."""
    line = Text()
    if problem.place is not None:
        line.append(f"{problem.place}: ", style="bold")
    if problem.path:
        line.append(f"{problem.path}: ")
    if not problem.is_error:
        line.append("warning: ", style="yellow")
    line.append(problem.message, style="red" if problem.is_error else "")
    return line
