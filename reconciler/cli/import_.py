"""`xgen-model hub import`: a repository of Hugging Face becomes a prefix of the hub."""

import os
import time
from typing import Annotated

import typer

from reconciler.cli.checks.finding import size
from reconciler.cli.hub_place import HubOption
from reconciler.cli.hub_progress import Told, saying_what_holds
from reconciler.cli.options import DataDir, data_dir, hub_settings
from reconciler.cli.output import Output, OutputOption, print_json
from reconciler.hub.huggingface import Imported
from reconciler.jobs.job import Ask
from reconciler.node.import_work import HubImports
from reconciler.plan.desired import Format
from reconciler.plan.repository import parse_repository

_PATIENCE_SECONDS = 5.0
"""For the end of a command that was killed. An agent that imports the same takes longer."""


def import_(
    repository: Annotated[
        str, typer.Argument(metavar="ORG/NAME[@REVISION]", help="At Hugging Face, or its mirror.")
    ],
    hub: HubOption,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The GGUF to take, where it has several.")
    ] = None,
    format: Annotated[Format, typer.Option(help="What to take, where it has both.")] = Format.AUTO,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Look for a newer commit, although the hub has it.")
    ] = False,
    data: DataDir = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Download a model from Hugging Face and push it to the hub, without an agent.

    Nothing is asked of Hugging Face for what the hub has. A token for gated models: HF_TOKEN, or a
    file that HF_TOKEN_PATH names; a mirror: HF_ENDPOINT. It is downloaded into DATA_DIR/imports
    first; a try that was cut off goes on there.
    """
    ask = Ask(repository=parse_repository(repository), file=file, format=format, refresh=refresh)
    work = HubImports(
        hub_settings(hub), data_dir(data), os.environ, patience_seconds=_PATIENCE_SECONDS
    )
    begun = time.monotonic()
    holds = "what came is kept; the same command goes on"
    with saying_what_holds(holds), Told() as told:
        told.waiting(f"asking {hub} and Hugging Face")
        imported = work.run(ask, _Bar(told))
    if output is Output.JSON:
        print_json({"api": 1, "hub": hub, "repository": ask.repository.name, **_json(imported)})
    else:
        typer.echo(_said(ask, imported, hub, time.monotonic() - begun))


class _Bar:
    """How far it is, as the bar of `hub push` shows it."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._step = ("", 0)
        self._done = 0

    def downloading(self, done: int, total: int) -> None:
        self._at("downloading", done, total)

    def uploading(self, done: int, total: int) -> None:
        self._at("uploading", done, total)

    def cancelled(self) -> bool:
        return False

    def _at(self, doing: str, done: int, total: int) -> None:
        if (doing, total) != self._step or not done:
            self._told.begin(doing, total, done)
            self._step, self._done = (doing, total), done
        self._told.advance(done - self._done)
        self._done = done


def _said(ask: Ask, imported: Imported, hub: str, seconds: float) -> str:
    lines = [
        f"{imported.prefix} in {hub}",
        f"  from      {ask.repository.name}, commit {imported.commit or 'not known'}",
        f"  size      {size(imported.size_bytes)}",
        f"  digest    {imported.digest or 'none: it has no catalog'}",
    ]
    if imported.was_there:
        hint = "" if ask.refresh else "; --refresh looks for a newer commit"
        return "\n".join([*lines, f"nothing to do: the hub has it{hint}"])
    return "\n".join([*lines, f"imported in {seconds:.1f} s"])


def _json(imported: Imported) -> dict[str, object]:
    return {
        "prefix": imported.prefix,
        "commit": imported.commit,
        "digest": imported.digest,
        "size_bytes": imported.size_bytes,
        "was_there": imported.was_there,
    }
