"""The command `xgen-model`: one function a command, each in its own module.

Only the command that was asked for is imported: a shell's completion must not wait for the agent.
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from reconciler.cli.bare_imports import import_structlog
from reconciler.cli.exits import ExitCode, UsageError
from reconciler.cli.stdout import WatchedStdout
from reconciler.errors import XgenError

COMMANDS = {
    "run": "Run the agent: make a manifest true on this node.",
    "demo": "See it work: a node or a cluster, a real small model.",
    "validate": "Check manifests; every problem with its place.",
    "plan": "Say what a manifest would start, restart and stop.",
    "status": "Show nodes and models: states and reasons.",
    "gpus": "Show this machine's GPUs, and what uses them.",
    "logs": "Print what a model's backend printed.",
    "events": "Show what happened on a node, and why.",
    "suspend": "Let a node or a model be as it is.",
    "resume": "Let it follow the manifest again.",
    "reconcile": "Make an agent look again now; retry failures.",
    "stop": "Stop what an agent has left running here.",
    "doctor": "Check this machine; explain what is amiss.",
    "hub": "Push models to the hub; pull, list, verify, remove.",
    "cache": "This node's model files: list, verify, remove.",
    "fleet": "Write down what the nodes are, for plans offline.",
    "schema": "Print a JSON schema: manifest, fleet file, plan.",
}
"""In the order in which one meets them. Each is the function of that name in its own module, or
the group (a Typer) of that name."""

_HELP = "One YAML manifest says which models run on which nodes; every node makes it so."
_EPILOG = (
    "Exit codes: 0 ok, 1 error, 2 changes (plan), 64 bad usage, 130 Ctrl-C. "
    "Settings: a flag beats its environment variable, which beats the default."
)


def _print_version(value: bool) -> None:
    if value:
        from reconciler import __version__

        typer.echo(f"xgen-model {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def _not_loaded() -> None:
    """Stands for a command that was not asked for, in the list of them all."""


def make_app(words: Sequence[str]) -> typer.Typer:
    """The application for a command line; `words` without the program's name."""
    app = typer.Typer(
        name="xgen-model",
        help=_HELP,
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_options)
    asked = next((word for word in words if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = _load(name) if name == asked else _not_loaded
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=summary)
        else:
            app.command(name, short_help=summary)(command)
    return app


def _load(name: str) -> Callable[..., object] | typer.Typer:
    command: Callable[..., object] | typer.Typer
    if name == "run":
        import_structlog()
    command = getattr(import_module(f"reconciler.cli.{name}"), name)
    return command


def _words() -> list[str]:
    """What stands on the command line, or on the one that a shell wants completed."""
    typed = os.environ.get("COMP_WORDS")
    return typed.split()[1:] if typed is not None else sys.argv[1:]


def main() -> None:
    """Run a command and exit with its code (`ExitCode`)."""
    stdout = WatchedStdout()
    code = int(ExitCode.ERROR)
    try:
        code = _run()
    except OSError:
        if stdout.failure() is None:
            raise
    if (lost := stdout.failure()) is not None:
        code = ExitCode.ERROR
        if lost.errno != errno.EPIPE:  # who closes a pipe has seen enough
            _complain(f"cannot write to stdout: {lost.strerror}")
    sys.exit(code)


def _run() -> int:
    try:
        app = make_app(_words())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was begun\n")
        return ExitCode.INTERRUPTED
    try:
        code = app(standalone_mode=False)
    except UsageError as exc:
        exc.show()
        return ExitCode.BAD_USAGE
    except (typer.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except XgenError as exc:
        _complain(str(exc))
        return ExitCode.ERROR
    return code if isinstance(code, int) else ExitCode.OK


def _complain(message: str) -> None:
    from reconciler.cli.output import complain

    complain(message)
