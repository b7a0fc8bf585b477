"""Reads a fleet file."""

import sys
from pathlib import Path

import typer
from rich.text import Text

from reconciler.cli.output import console, show
from reconciler.cli.problem_view import problem_words
from reconciler.errors import Rejected
from reconciler.manifest.fleet import parse_fleet
from reconciler.manifest.fleet_model import FleetNode
from reconciler.manifest.text import MAX_BYTES
from reconciler.source.names import shown_name


def read_fleet(path: Path) -> tuple[FleetNode, ...]:
    """Its nodes. Raises Rejected; every problem is printed on stderr before. Raises
    typer.BadParameter where there is no such file."""
    name = shown_name(str(path))
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        raise typer.BadParameter(f"there is no file {name}", param_hint="--fleet") from exc
    except OSError as exc:
        raise Rejected(f"cannot read the fleet file {name}: {exc.strerror}") from exc
    parsed = parse_fleet(name, content)
    err = console(sys.stderr)
    for problem in parsed.problems:
        show(err, Text.assemble(*problem_words(problem)))
    if parsed.fleet is None:
        count = len(parsed.problems)
        errors = f"{count} error{'' if count == 1 else 's'}"
        raise Rejected(f"cannot use the fleet file {name}: {errors}, shown above")
    return parsed.fleet.spec.nodes
