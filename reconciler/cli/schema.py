"""`xgen-model schema`: the manifest's JSON schema, for editors and CI."""

import typer

from reconciler.manifest.schema import schema_text


def schema() -> None:
    """Print the JSON schema of the manifest."""
    typer.echo(schema_text(), nl=False)
