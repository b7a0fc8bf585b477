"""The command `xgen-model`: one function a command, each in its own module."""

import sys
from typing import Annotated

import click
import typer

from reconciler import __version__
from reconciler.cli.demo import demo
from reconciler.cli.run import run
from reconciler.cli.schema import schema
from reconciler.cli.status import status
from reconciler.cli.validate import validate
from reconciler.errors import XgenError

BAD_USAGE = 64

app = typer.Typer(
    name="xgen-model",
    help="Make a manifest of models true on this node, and serve them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(run)
app.command()(demo)
app.command()(validate)
app.command()(status)
app.command()(schema)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"xgen-model {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run a command. Exit codes: 0 ok, 1 error, 64 bad usage."""
    try:
        code = app(standalone_mode=False)
    except click.UsageError as exc:
        exc.show()
        sys.exit(BAD_USAGE)
    except click.ClickException as exc:
        exc.show()
        sys.exit(1)
    except click.Abort:
        sys.exit(130)
    except XgenError as exc:
        typer.secho(f"error: {exc}", fg="red", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
