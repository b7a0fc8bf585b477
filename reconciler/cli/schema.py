"""`xgen-model schema`: the JSON schemas of what is written and printed, for editors and CI."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from reconciler.manifest.schema import fleet_schema, manifest_schema, schema_text


class Subject(StrEnum):
    MANIFEST = "manifest"
    FLEET = "fleet"
    PLAN = "plan"


def schema(
    of: Annotated[
        Subject,
        typer.Argument(
            help="The manifest, a fleet file (`plan --fleet`), or what `plan --output json` prints."
        ),
    ] = Subject.MANIFEST,
) -> None:
    """Print a JSON schema (2020-12)."""
    typer.echo(schema_text(_of(of)), nl=False)


def _of(subject: Subject) -> dict[str, Any]:
    match subject:
        case Subject.MANIFEST:
            return manifest_schema()
        case Subject.FLEET:
            return fleet_schema()
        case Subject.PLAN:
            from reconciler.cli.plan_schema import plan_schema

            return plan_schema()
